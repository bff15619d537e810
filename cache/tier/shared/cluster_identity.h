// A process as servers and other nodes know it: its login, and the tags of its job and of its
// machine. Thread safety: pure, but for the reads of files.
#pragma once

#include <string>

#include "cache/base/settings/config.h"
#include "cache/tier/shared/cluster_record.h"

namespace cube::cache {

ClusterTags cluster_tags(const base::Config& config);
// "USER PASSWORD" of CUBESHIM_CLUSTER_LOGIN_FILE; empty: there is none. False: `why` is one line
// for the user.
bool read_cluster_login(const std::string& path, std::string& login, std::string& why);
// The largest value of a cluster: a file of CUBESHIM_MAX_FILE or a block of CUBESHIM_BLOCK, with
// its head.
std::uint64_t largest_cluster_value(const base::Config& config);

}  // namespace cube::cache
