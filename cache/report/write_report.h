// Writes the report of a job (doc/CONFIG.md, CUBESHIM_STATS). Thread safety: may run concurrently
// with everything else. Allocates nothing, because a signal handler may end the program.
#pragma once

#include <climits>
#include <cstdint>
#include <string_view>

#include "cache/base/result.h"
#include "cache/base/settings/config.h"
#include "cache/base/unique_fd.h"
#include "cache/region/region.h"

namespace cube::cache {

// Collects the figures, notes what was reported, and writes to the place that CUBESHIM_STATS names.
// `pid` replaces %p. A text for stderr is omitted if nothing below a prefix was opened, unless the
// job `has_opened_many` other files.
void write_report(Region& region, std::uint32_t job, const base::Config& config, std::uint32_t pid,
                  bool has_opened_many = false);

// Like write_report, for the end of the job: the second call writes nothing. %p is the pid of the
// job's first process.
void write_last_report(Region& region, std::uint32_t job, const base::Config& config,
                       bool has_opened_many = false);

// Like write_report, for a job in which no process has attached to the cache.
void write_empty_report(const base::Config& config, std::uint32_t pid, bool has_opened_many);

// Opens the file of a pattern with %p for appending; `path` receives its name. EPERM: the file may
// not be used for a report.
base::Result<base::UniqueFd> open_report_file(std::string_view pattern, std::uint32_t pid,
                                              char (&path)[PATH_MAX]);

// True for exactly one caller after each interval, so that periodic reports need no thread.
bool report_interval_passed(Region& region, std::uint32_t job, std::uint64_t interval_seconds);

}  // namespace cube::cache
