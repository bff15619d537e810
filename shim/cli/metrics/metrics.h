// What the caches of a user have done and how they are, as Prometheus wants it
// (doc/deploy/METRICS.md): each figure of stats.def and some of the region beside them, with a
// label for the cache. Each look maps the regions anew, so that no series of a cache that has gone
// stays, and no memory of one is held. Thread safety: all of it.
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
    std::uint64_t count = 0;  // of all up to the bound
  };
  std::vector<std::pair<std::string, std::string>> labels;  // name and value, which is UTF-8
  double value = 0;
  // A histogram has these.
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

// All that there are, without samples.
std::vector<MetricFamily> metric_families();

class CacheMetrics {
 public:
  // `names`: of these caches; none: of all of this user in the directory.
  CacheMetrics(std::string directory, std::vector<std::string> names)
      : directory_(std::move(directory)), names_(std::move(names)) {}

  // Families without a sample are left out. `troubles`: a line for each cache that cannot be read.
  std::vector<MetricFamily> collect(std::vector<std::string>& troubles);
  // Which of the given names have no cache now.
  std::vector<std::string> absent() const;

 private:
  // The counters of a region at the last look: they never seem to fall, although those of a process
  // that ends are nowhere for a moment.
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
