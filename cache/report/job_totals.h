// The totals of a job, which collect() sums up. The totals are the counters of the job's first
// process and of all its descendants (no matter how these ended), and the state of the region.
// figures.h has the names of the totals in the report. Thread safety: it reads atomics, and may run
// concurrently with everything else. Allocates nothing, because a signal handler may end the
// program.
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
  std::uint64_t unread = 0;  // records that any job has prefetched and no program has opened yet
  std::uint64_t
      chunk_bytes = 0,
      chunk_unread =
          0;  // bytes of large files, and how many of them were fetched ahead and not read yet

  base::TierStatus tiers[base::k_tiers];
  bool is_index_full = false;
  // A file below a prefix that was opened by a path outside all prefixes; empty: there is none.
  char misspelled[sizeof JobRow::misspelled] = {};
  // The first file that was not served, for each reason in the order of k_bypassed; empty: there is
  // none.
  char unserved[k_unserved_reasons][sizeof(NotedPath<128>)] = {};

  // The calls that materialized served files, and the number of files for each call.
  struct Call {
    char name[17] = {};
    std::uint64_t count = 0;
  };
  Call materialized_by[k_call_counts] = {};

  // Returns these totals, but with only the counts since `before`.
  JobTotals since(const JobTotals& before) const;
  std::uint64_t hits() const;
  // The number of opens below a prefix, whether served or not.
  std::uint64_t opens() const;
  // The number of opens that were not served.
  std::uint64_t bypassed() const;
  // The number of metadata calls that memory answered.
  std::uint64_t metadata_answered() const;
  bool has_seen_nothing() const { return opens() == 0 && metadata_answered() == 0; }
  // The number of opens of files that an unbounded cache would hold.
  std::uint64_t requests() const;
  // hits / requests.
  double hit_rate() const;
  std::uint64_t timed_misses() const { return base::count_of(totals.miss_latency); }
  // The name of the source of the job's reads: "mount" (also for a pack), "object store", or
  // "origin" for both.
  const char* name_of_origin() const;
  // The time of an undisturbed fetch from the origin: the lower quartile of the fetches.
  // Prefetching slows the other fetches down, so their mean does not describe the origin. The time
  // is rounded down to the lower bound of the quartile's bucket. Empty: no fetch was measured.
  std::optional<double> ns_of_miss() const;
  // The time that all processes would have waited without the cache, minus the time that they did
  // wait. `least_ns` assumes that the kernel would have kept each file in memory after the first
  // open. `most_ns` assumes that each open would have been a fetch. A hit that still opened the
  // origin's file, for a lock or to materialize, has saved nothing. Both times are at least 0.
  // Empty: too few fetches were measured.
  struct Saved {
    double least_ns, most_ns;
  };
  std::optional<Saved> saved() const;
  // The time of all hits, estimated from the sampled hits.
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

// The sums of all jobs that the region has ever had. While a process ends, a counter may be a
// little lower than at the last call, but it never exceeds the true value.
JobTotals collect_all(const Region& region);

}  // namespace cube::cache
