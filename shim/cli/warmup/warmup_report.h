// The result of a warm-up, or of a preview of a warm-up, as a few lines of text or as one JSON
// object. Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "prefetch/work/prefetcher.h"
#include "shim/cli/warmup/cluster/cluster_load.h"
#include "shim/cli/warmup/metadata_load.h"
#include "shim/cli/warmup/skipped.h"
#include "shim/cli/warmup/survey.h"

namespace cube::cli {

struct CacheRoom {
  std::string region;  // empty if there is no region
  std::uint64_t capacity = 0, used = 0, files = 0;
};
CacheRoom room_of(const cache::Region& region);

struct WarmupReport {
  enum class What { load, cluster, names, check, dry_run, evict } what = What::load;
  prefetch::PrefetchCounts loaded;  // of load
  ClusterLoadCounts cluster;        // if `what` is cluster
  LoadedMetadata names;             // if `what` is load or names
  SurveyCounts found;               // if `what` is check, dry_run or evict
  std::vector<SkippedRow> skipped;
  CacheRoom room;
  double seconds = 0;
  int signal = 0;

  std::uint64_t skipped_files() const;
  std::string text() const;
  std::string json() const;
};

}  // namespace cube::cli
