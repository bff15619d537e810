// Identifies a process to servers and other nodes: its login, and the tags of its job and of its
// machine. Thread safety: pure, except for reading files.
#pragma once

#include <string>

#include "cache/base/settings/config.h"
#include "cache/tier/shared/cluster_record.h"

namespace cube::cache {

ClusterTags cluster_tags(const base::Config& config);
// Reads "USER PASSWORD" from the file that CUBESHIM_CLUSTER_LOGIN_FILE names. `login` stays empty
// if the setting is empty. On failure, returns false, and `why` explains the failure to the user in
// one line.
bool read_cluster_login(const std::string& path, std::string& login, std::string& why);
// The size of the largest value that this node stores in a cluster: a file of CUBESHIM_MAX_FILE or
// a block of CUBESHIM_BLOCK, together with its head.
std::uint64_t largest_cluster_value(const base::Config& config);

}  // namespace cube::cache
