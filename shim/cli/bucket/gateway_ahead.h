// The gateway of a command that fills a cache. The command reads buckets through the cache's
// gateway, and starts a gateway if none is running. Thread safety: one thread.
#pragma once

#include <map>
#include <string>

#include "cache/base/process/process_id.h"
#include "cache/base/settings/config.h"
#include "cache/file_cache.h"

namespace cube::cli {

// Call this before a bucket is opened. `environment` determines the store and the credentials. The
// gateway belongs to `job`, and gets only the variables that a gateway may have.
void prepare_gateway(const base::Config& config, const base::ProcessId& job,
                     std::map<std::string, std::string> environment);
// Starts the gateway if none is running. `cache` and `config` must outlive all use of buckets.
void use_gateway(cache::FileCache& cache, const base::Config& config);

}  // namespace cube::cli
