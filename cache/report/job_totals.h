// The totals of a job: the sums of the counters of its processes, and the state of the region. The
// processes are the job's first process and all its descendants, no matter how they ended.
// figures.h has their names in the report. Thread safety: collect() reads atomics, and may run
// concurrently with everything else. collect() allocates nothing, because a signal handler may end
// the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "cache/region/region.h"

namespace cube::cache {

struct JobTotals {
  base::Totals totals;
  std::uint64_t milliseconds = 0;                                 // the age of the job
  std::uint64_t ram_capacity = 0, ram_used = 0, ram_entries = 0;  // bytes, bytes, records
  std::uint64_t unread = 0;  // records that were prefetched, by any job, and that no program has
                             // opened yet
  std::uint64_t chunk_bytes = 0,
                chunk_unread = 0;  // bytes of large files in chunks, and how many of them were
                                   // fetched ahead and not read yet

  base::TierStatus tiers[base::k_tiers];
  bool is_index_full = false;
  // A path outside all prefixes by which a file below a prefix was opened; empty: there is none.
  char misspelled[sizeof JobRow::misspelled] = {};
  // For each reason of k_bypassed, in this order: the first file that was not served for this
  // reason; empty: there is none.
  char unserved[k_unserved_reasons][sizeof(NotedPath<128>)] = {};

  // The calls that materialized served files, with the number of files for each call.
  struct Call {
    char name[17] = {};
    std::uint64_t count = 0;
  };
  Call materialized_by[k_call_counts] = {};

  // Returns these totals with the counts reduced by those of `before`.
  JobTotals since(const JobTotals& before) const;
  std::uint64_t hits() const;
  // The number of opens below a prefix, whether served or not.
  std::uint64_t opens() const;
  // The number of opens that were not served.
  std::uint64_t bypassed() const;
  // The number of metadata calls that memory answered.
  std::uint64_t metadata_answered() const;
  bool has_seen_nothing() const { return opens() == 0 && metadata_answered() == 0; }
  // The number of opens of files that a cache without a size limit would have.
  std::uint64_t requests() const;
  // hits / requests.
  double hit_rate() const;
  std::uint64_t timed_misses() const { return base::count_of(totals.miss_latency); }
  // The name of the job's source: "mount" (also for a pack), "object store", or "origin" if it has
  // read from both.
  const char* name_of_origin() const;
  // The time of an undisturbed fetch from the origin: the lower quartile of all measured fetches,
  // rounded down to the lower bound of its bucket. The mean would not describe the origin, because
  // prefetching slows many fetches down. Empty: no fetch was measured.
  std::optional<double> ns_of_miss() const;
  // The time that the cache has saved: the time that all processes would have waited without the
  // cache, minus the time that they did wait. `least_ns` assumes that the kernel would have kept
  // each file in memory after its first open. `most_ns` assumes that each open would have fetched
  // the file. Hits that also opened the origin's file, for a lock or to materialize, have saved
  // nothing. Both times are at least 0. Empty: too few fetches were measured.
  struct Saved {
    double least_ns, most_ns;
  };
  std::optional<Saved> saved() const;
  // The total time of all hits, estimated from the hits that were timed.
  std::uint64_t hit_ns() const;
  // The mean time of a hit. Empty: no hit was measured.
  std::optional<double> ns_of_hit() const;
  // The quantile `q` of the durations of opens, in microseconds.
  double hit_us(double q) const {
    return static_cast<double>(base::quantile_ns(totals.hit_latency, q)) / 1000;
  }
  double miss_us(double q) const {
    return static_cast<double>(base::quantile_ns(totals.miss_latency, q)) / 1000;
  }
};

JobTotals collect(Region& region, std::uint32_t job);

// The sums over all jobs that the region has ever had. While a process ends, a counter may be lower
// than at the last call, but it is never higher than the true value.
JobTotals collect_all(const Region& region);

}  // namespace cube::cache
