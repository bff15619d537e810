// The cache that a warm-up fills: the cache of the running job, which the command joins, or a cache
// that is kept for a later job. Thread safety: one thread.
#pragma once

#include <string>
#include <vector>

#include "cache/file_cache.h"
#include "shim/cli/settings.h"
#include "shim/cli/warmup/running_job.h"

namespace cube::cli {

struct WarmupTarget {
  base::ParsedConfig parsed;  // settings that are not given come from the running job
  RunningJob job;
  const cache::Origins* origins =
      nullptr;                        // the job's origins; never freed, because the cache uses them
  cache::FileCache* cache = nullptr;  // null if there is none; `why` then gives the reason
  std::string why;
  bool is_broken = false;  // a region exists, but cannot be used

  // Detaches from the cache. Returns false if the cache was removed because the job has ended and
  // no setting keeps the cache.
  bool leave();
};

// If `only_look` is true, makes no cache and does not change an existing cache.
WarmupTarget find_target(const Settings& settings, bool only_look);

// Replaces names of objects (s3://...) by the paths at which a job sees the objects. If a job
// cannot see one of the objects, returns false and sets `why` to a sentence.
bool find_objects(const base::Config& config, std::vector<std::string>& paths, std::string& why);

}  // namespace cube::cli
