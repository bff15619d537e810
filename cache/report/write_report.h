// Writes the report of a job (doc/CONFIG.md, CUBESHIM_STATS). Thread safety: the functions may run
// concurrently with everything else. They allocate nothing, because a signal handler may end the
// program.
#pragma once

#include <climits>
#include <cstdint>
#include <string_view>

#include "cache/base/result.h"
#include "cache/base/settings/config.h"
#include "cache/base/unique_fd.h"
#include "cache/region/region.h"

namespace cube::cache {

// Collects the figures, and writes the report to the place that CUBESHIM_STATS names, with `pid` in
// place of %p. Remembers the counts for the next report. If no file below a prefix was opened, a
// report to stderr is written only if `has_opened_many`: the job has opened many other files.
void write_report(Region& region, std::uint32_t job, const base::Config& config, std::uint32_t pid,
                  bool has_opened_many = false);

// Like write_report, but for the end of the job: only the first call writes a report. %p stands for
// the pid of the job's first process.
void write_last_report(Region& region, std::uint32_t job, const base::Config& config,
                       bool has_opened_many = false);

// Like write_report, but for a job of which no process has attached to the cache.
void write_empty_report(const base::Config& config, std::uint32_t pid, bool has_opened_many);

// Opens the file that the pattern names for appending, with `pid` in place of %p. Sets `path` to
// the name of the file. EPERM: the file must not be used for a report.
base::Result<base::UniqueFd> open_report_file(std::string_view pattern, std::uint32_t pid,
                                              char (&path)[PATH_MAX]);

// Returns true to exactly one caller after each interval. So periodic reports need no thread.
bool report_interval_passed(Region& region, std::uint32_t job, std::uint64_t interval_seconds);

}  // namespace cube::cache
