// The report of a job: the counters of its first process and all descendants, however they ended, as text or JSON
// (doc/CONFIG.md). Thread safety: reads atomics, may run beside everything else. Allocates nothing, for a signal handler may
// end the program.
#pragma once

#include <string_view>

#include "cache/base/config.h"
#include "cache/ram/region.h"

namespace cube::cache {

struct JobTotals {
  base::Totals totals;
  std::uint64_t ram_capacity = 0, ram_used = 0, ram_entries = 0;  // bytes, bytes, records
  std::uint64_t unread = 0;  // records that were prefetched, by whatever job, and not opened yet

  std::uint64_t disk_capacity = 0, disk_used = 0, disk_entries = 0;  // capacity 0: there is no disk
  std::uint64_t disk_unwritten = 0;

  std::uint64_t hits() const { return totals[base::Counter::hits_ram] + totals[base::Counter::hits_disk]; }
  // Opens under a prefix, however they went.
  std::uint64_t opens() const;
  // Opens of files that a cache of boundless size would hold.
  std::uint64_t requests() const;
};

JobTotals collect(Region& region, std::uint32_t job);

struct ReportText {
  char bytes[4096];
  std::size_t size = 0;
  std::string_view view() const { return {bytes, size}; }
};
ReportText report_as_json(const JobTotals& job);
// The two lines that the field knows: since the last report, and in all; then what went past the cache, if anything.
ReportText report_as_text(const JobTotals& job, std::uint64_t last_requests, std::uint64_t last_hits);

// Collects, notes what was reported, and writes to where CUBESHIM_STATS says. `pid` is for %p.
void write_report(Region& region, std::uint32_t job, const base::Config& config, std::uint32_t pid);

// The same where no process of the job has opened anything under a prefix; only for those who read it by program.
void write_empty_report(const base::Config& config, std::uint32_t pid);

// For periodic lines without a thread: true for one caller when the interval has passed.
bool report_interval_passed(Region& region, std::uint32_t job, std::uint64_t interval_seconds);

}  // namespace cube::cache
