// The cache that a warm-up fills: the running job's, which the command then joins, or else one that
// is kept for a later job. Thread safety: one thread.
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
      nullptr;  // as the job sees them; never freed, because the cache keeps using them
  cache::FileCache* cache = nullptr;  // null: there is none, see `why`
  std::string why;
  bool is_broken = false;  // a region exists, but cannot be used

  // Detaches from the cache. Returns false if the cache was removed, because the job has ended and
  // no setting keeps it.
  bool leave();
};

// With `only_look`, makes nothing and does not change an existing cache.
WarmupTarget find_target(const Settings& settings, bool only_look);

// Replaces names of objects (s3://...) by the paths at which a job sees them. Returns false if a
// job does not see one of them; `why` is then a sentence.
bool find_objects(const base::Config& config, std::vector<std::string>& paths, std::string& why);

}  // namespace cube::cli
