// The totals of a job, which collect() sums up: the counters of its first process and of all
// descendants, however they ended, and the state of the region. figures.h has their names in the
// report. Thread safety: reads atomics, may run concurrently with everything else. Allocates
// nothing, because a signal handler may end the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "cache/region/region.h"

namespace cube::cache {

struct JobTotals {
  base::Totals totals;
  std::uint64_t milliseconds = 0;                                 // of the job so far
  std::uint64_t ram_capacity = 0, ram_used = 0, ram_entries = 0;  // bytes, bytes, records
  std::uint64_t unread = 0;  // records that any job has prefetched and no program has opened yet
  std::uint64_t
      chunk_bytes = 0,
      chunk_unread =
          0;  // bytes of large files, and how many of them were fetched ahead and not read yet

  base::TierStatus tiers[base::k_tiers];
  bool is_index_full = false;
  // A file below a prefix that was opened by another path; empty: none.
  char misspelled[sizeof JobRow::misspelled] = {};
  // The first file that was not served for each reason, in the order of k_bypassed; empty: none.
  char unserved[k_unserved_reasons][sizeof(NotedPath<128>)] = {};

  // The calls that materialized served files, and how many files each.
  struct Call {
    char name[17] = {};
    std::uint64_t count = 0;
  };
  Call materialized_by[k_call_counts] = {};

  // Returns this state of the region with the counts since `before` alone.
  JobTotals since(const JobTotals& before) const;
  std::uint64_t hits() const;
  // All opens under a prefix, served or not.
  std::uint64_t opens() const;
  // Opens that were not served.
  std::uint64_t bypassed() const;
  // Metadata calls that memory answered.
  std::uint64_t metadata_answered() const;
  bool has_seen_nothing() const { return opens() == 0 && metadata_answered() == 0; }
  // Opens of files that an unbounded cache would hold.
  std::uint64_t requests() const;
  // hits / requests.
  double hit_rate() const;
  std::uint64_t timed_misses() const { return base::count_of(totals.miss_latency); }
  // Names the source of the job's reads: "mount" (also for a pack), "object store", or "origin" for
  // both.
  const char* name_of_origin() const;
  // The time of an undisturbed fetch from the origin: the lower quartile of the fetches.
  // Prefetching slows the other fetches down, so the mean does not describe the origin. It is
  // rounded down, to the lower bound of the quartile's bucket. None: no fetch was measured.
  std::optional<double> ns_of_miss() const;
  // The time that all processes would have waited without the cache, minus the time that they did
  // wait. `least_ns` assumes that the kernel would have kept each file in memory after its first
  // open, `most_ns` that each open would have been a fetch. A hit that still opened the origin's
  // file, for a lock or to materialize, has saved nothing. Neither is below 0. None: too few
  // fetches were measured.
  struct Saved {
    double least_ns, most_ns;
  };
  std::optional<Saved> saved() const;
  // The time of all hits, estimated from the sampled ones.
  std::uint64_t hit_ns() const;
  // The mean time of a hit. None: no hit was measured.
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
// little lower than at the last call, but never above the true value.
JobTotals collect_all(const Region& region);

}  // namespace cube::cache
