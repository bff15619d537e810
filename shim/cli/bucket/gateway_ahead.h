// Lets a command that fills a cache use that cache's gateway, and start one if there is none.
// Thread safety: one thread.
#pragma once

#include <map>
#include <string>

#include "cache/base/process/process_id.h"
#include "cache/base/settings/config.h"
#include "cache/file_cache.h"

namespace cube::cli {

// Call it before a bucket is opened: the environment determines the store and the credentials. The
// gateway gets the variables of the environment that it may have, and belongs to `job`.
void prepare_gateway(const base::Config& config, const base::ProcessId& job,
                     std::map<std::string, std::string> environment);
// Starts the gateway unless there is one. `cache` and `config` must outlive all use of buckets.
void use_gateway(cache::FileCache& cache, const base::Config& config);

}  // namespace cube::cli
