// The report of a job: the counters of its first process and all descendants, however they ended, as text or JSON
// (doc/CONFIG.md). Thread safety: reads atomics, may run beside everything else. Allocates nothing, for a signal handler may
// end the program.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cache/base/config.h"
#include "cache/region/region.h"

namespace cube::cache {

struct JobTotals {
  base::Totals totals;
  std::uint64_t ram_capacity = 0, ram_used = 0, ram_entries = 0;  // bytes, bytes, records
  std::uint64_t unread = 0;  // records that were prefetched, by whatever job, and not opened yet

  base::TierStatus tiers[base::k_tiers];
  bool is_index_full = false;
  char misspelled[sizeof JobRow::misspelled] = {};  // a file below a prefix that was opened by another name; empty: none

  // The calls that had served files made kernel files, and how many each.
  struct Call {
    char name[17] = {};
    std::uint64_t count = 0;
  };
  Call materialized_by[k_call_counts] = {};

  std::uint64_t hits() const;
  // Opens under a prefix, however they went.
  std::uint64_t opens() const;
  // Opens of files that a cache of boundless size would hold.
  std::uint64_t requests() const;
};

// A served file has become a kernel file for this call.
void count_materialized(Region& region, std::uint32_t job, const char* call);

JobTotals collect(Region& region, std::uint32_t job);

struct ReportText {
  char bytes[4096];
  std::size_t size = 0;
  std::string_view view() const { return {bytes, size}; }
};
ReportText report_as_json(const JobTotals& job);
// The two lines that the field knows: since the last report, and in all; last, what was not served, and what to do about it.
// `prefixes` are named where nothing below them was opened.
ReportText report_as_text(const JobTotals& job, std::uint64_t last_requests, std::uint64_t last_hits,
                          std::span<const std::string> prefixes = {});

// A program has opened a file below a prefix by a name that no prefix has. The first one of a job is kept.
void note_misspelled(Region& region, std::uint32_t job, std::string_view path);

// Collects, notes what was reported, and writes to where CUBESHIM_STATS says. `pid` is for %p.
// A text for stderr is left out where nothing below a prefix was opened, unless the job `has_opened_many` other files.
void write_report(Region& region, std::uint32_t job, const base::Config& config, std::uint32_t pid, bool has_opened_many = false);

// The same where no process of the job has the cache.
void write_empty_report(const base::Config& config, std::uint32_t pid, bool has_opened_many);

// For periodic lines without a thread: true for one caller when the interval has passed.
bool report_interval_passed(Region& region, std::uint32_t job, std::uint64_t interval_seconds);

}  // namespace cube::cache
