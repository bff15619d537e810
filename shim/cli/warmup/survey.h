// Counts how many of the named files are cached, and the size of all others. Looks up each file in
// the cache, and asks the origin for the size of a missing file. Fetches nothing. Uses several
// threads, because a slow origin has a high latency. Thread safety: one caller.
#pragma once

#include <cstdint>

#include "cache/file_cache.h"
#include "shim/cli/warmup/progress.h"
#include "shim/cli/warmup/skipped.h"

namespace cube::cli {

struct SurveyCounts {
  std::uint64_t cached = 0, cached_bytes = 0;
  std::uint64_t absent = 0, absent_bytes = 0;
};

struct SurveyPlace {
  cache::FileCache* cache = nullptr;  // null: nothing is cached
  const cache::Origins* origins = nullptr;
  std::uint64_t max_file = 0;  // bytes
  bool serves_large = false;   // larger files are cached in blocks
  bool evict = false;          // evicts the cached files
};

// Returns early after an interrupt.
SurveyCounts survey(NamedPaths& paths, const SurveyPlace& place, Skipped& skipped,
                    Progress& progress);

}  // namespace cube::cli
