// Fetches the named files into the cache. Thread safety: one caller.
#pragma once

#include <string>

#include "prefetch/work/prefetcher.h"
#include "shim/cli/warmup/census.h"
#include "shim/cli/warmup/progress.h"
#include "shim/cli/warmup/skipped.h"

namespace cube::cli {

// Returns after all files are handled, or after an interrupt. `census` may be null.
prefetch::PrefetchCounts load(NamedPaths& paths, prefetch::Prefetcher& prefetcher,
                              const Census* census, Skipped& skipped, Progress& progress);

}  // namespace cube::cli
