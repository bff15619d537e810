// Lets a command that fills a cache ask the gateway of that cache, and start it. Thread safety: one
// call, before the first use of a bucket.
#pragma once

#include <map>
#include <string>

#include "cache/base/process/process_id.h"
#include "cache/base/settings/config.h"
#include "cache/file_cache.h"

namespace cube::cli {

// Starts the gateway unless there is one. It gets the variables of `environment` that a gateway is
// given, and belongs to `job`. `cache` and `config` must outlive the process's use of buckets.
void use_gateway(cache::FileCache& cache, const base::Config& config, const base::ProcessId& job,
                 std::map<std::string, std::string> environment);

}  // namespace cube::cli
