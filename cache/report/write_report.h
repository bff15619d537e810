// Writes the report of a job (doc/CONFIG.md, CUBESHIM_STATS). Thread safety: the functions may run
// concurrently with everything else. Allocates nothing, because a signal handler may end the
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

// Collects the figures, notes what was reported, and writes to the place that CUBESHIM_STATS names.
// `pid` replaces %p. If no file below a prefix was opened, a text for stderr is written only if the
// job `has_opened_many` other files.
void write_report(Region& region, std::uint32_t job, const base::Config& config, std::uint32_t pid,
                  bool has_opened_many = false);

// Like write_report, but for the end of the job: only the first call writes. %p is the pid of the
// job's first process.
void write_last_report(Region& region, std::uint32_t job, const base::Config& config,
                       bool has_opened_many = false);

// Like write_report, but for a job in which no process has attached to the cache.
void write_empty_report(const base::Config& config, std::uint32_t pid, bool has_opened_many);

// Opens the file of a pattern, in which `pid` replaces %p, for appending. `path` receives the name
// of the file. EPERM: the file must not be used for a report.
base::Result<base::UniqueFd> open_report_file(std::string_view pattern, std::uint32_t pid,
                                              char (&path)[PATH_MAX]);

// Returns true to exactly one caller after each interval, so that periodic reports need no thread.
bool report_interval_passed(Region& region, std::uint32_t job, std::uint64_t interval_seconds);

}  // namespace cube::cache
