// Collects the counts and the state of a user's caches for Prometheus (doc/deploy/METRICS.md): each
// figure of stats.def and some figures of the region, with a label for the cache. Each sample maps
// the regions again, so a removed cache leaves neither series nor memory behind. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cache/base/settings/stats.h"

namespace cube::cli {

enum class MetricKind { counter, gauge, histogram };

struct MetricSample {
  struct Bucket {
    double bound = 0;
    std::uint64_t count = 0;  // the number of values up to the bound
  };
  std::vector<std::pair<std::string, std::string>> labels;  // name and value, in UTF-8
  double value = 0;
  // Only a histogram has these members.
  std::vector<Bucket> buckets;
  std::uint64_t count = 0;
  double sum = 0;
};

struct MetricFamily {
  std::string name, help;
  MetricKind kind = MetricKind::gauge;
  std::vector<std::string> label_names;
  std::vector<MetricSample> samples;
};

// Returns all families, without samples.
std::vector<MetricFamily> metric_families();

class CacheMetrics {
 public:
  // Reports the caches of these `names`. If `names` is empty, reports all caches of this user in
  // the directory.
  CacheMetrics(std::string directory, std::vector<std::string> names)
      : directory_(std::move(directory)), names_(std::move(names)) {}

  // Omits families without samples. Adds a line to `troubles` for each cache that cannot be read.
  std::vector<MetricFamily> collect(std::vector<std::string>& troubles);
  // Returns the given names that have no cache now.
  std::vector<std::string> absent() const;

 private:
  // The counters of a region at the last sample. The counters of a process that ends are in no row
  // for a moment. With the counters of the last sample, a reported counter never falls.
  struct Seen {
    std::uint64_t created_ns = 0, look = 0;
    base::Totals totals;
  };
  void collect_cache(const std::string& name, std::vector<MetricFamily>& families,
                     std::vector<std::string>& troubles);

  const std::string directory_;
  const std::vector<std::string> names_;
  std::mutex mutex_;
  std::map<std::string, Seen> seen_;
  std::uint64_t looks_ = 0;
};

}  // namespace cube::cli
