// Tells how many of the named files are cached, and how large the rest is. Each file is looked for
// in the cache; its origin is asked for its size if it is not there. Nothing is fetched. Several
// threads, for a slow origin answers each question late. Thread safety: one caller.
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
  bool serves_large = false;   // larger files are cached, too, in blocks
  bool evict = false;          // what is cached is forgotten
};

// Ends early when the command is interrupted.
SurveyCounts survey(NamedPaths& paths, const SurveyPlace& place, Skipped& skipped,
                    Progress& progress);

}  // namespace cube::cli
