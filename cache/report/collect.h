// The figures of a job: the counters of its first process and all descendants, however they ended,
// and the state of the region. Thread safety: reads atomics, may run beside everything else.
// Allocates nothing, for a signal handler may end the program.
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
  std::uint64_t unread = 0;  // records that were prefetched, by whatever job, and not opened yet
  std::uint64_t chunk_bytes = 0,
                chunk_unread = 0;  // bytes of large files; of them, fetched ahead and not read yet

  base::TierStatus tiers[base::k_tiers];
  bool is_index_full = false;
  char misspelled[sizeof JobRow::misspelled] =
      {};  // a file below a prefix that was opened by another name; empty: none

  // The calls that had served files made kernel files, and how many each.
  struct Call {
    char name[17] = {};
    std::uint64_t count = 0;
  };
  Call materialized_by[k_call_counts] = {};

  std::uint64_t hits() const;
  // Opens under a prefix, however they went.
  std::uint64_t opens() const;
  // Opens that were not served.
  std::uint64_t bypassed() const;
  // Calls by names that memory answered.
  std::uint64_t metadata_answered() const;
  bool has_seen_nothing() const { return opens() == 0 && metadata_answered() == 0; }
  // Opens of files that a cache of boundless size would hold.
  std::uint64_t requests() const;
  // hits / requests.
  double hit_rate() const;
  std::uint64_t timed_misses() const { return base::count_of(totals.miss_latency); }
  // A file at the mount while nothing else is fetched: a quarter of the fetches were quicker.
  // Prefetching makes the others slower, so their mean says nothing of the mount. None: no fetch
  // was measured.
  std::optional<double> ns_of_miss() const;
  // The waiting of all processes that there would have been without the cache, less what there was.
  // The least takes it that the kernel would have kept each file from its first open to its next.
  // The most takes it that each open would have been a fetch. Neither is below 0. None: too few
  // fetches were measured.
  struct Saved {
    double least_ns, most_ns;
  };
  std::optional<Saved> saved() const;
  // The time of all hits, as far as it was measured.
  std::uint64_t hit_ns() const;
  // The mean of that. None: no hit was measured.
  std::optional<double> ns_of_hit() const;
  // The duration in microseconds below which the share `q` of the opens lies.
  double hit_us(double q) const {
    return static_cast<double>(base::quantile_ns(totals.hit_latency, q)) / 1000;
  }
  double miss_us(double q) const {
    return static_cast<double>(base::quantile_ns(totals.miss_latency, q)) / 1000;
  }
};

JobTotals collect(Region& region, std::uint32_t job);

// The sums of all jobs that the region has ever had. Counters may be a little less than they were
// at the last look, while a process ends; never more than they are.
JobTotals collect_all(const Region& region);

}  // namespace cube::cache
