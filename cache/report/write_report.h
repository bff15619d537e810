// When and where the report of a job is written (doc/CONFIG.md, CUBESHIM_STATS).
// Thread safety: may run beside everything else. Allocates nothing, for a signal handler may end
// the program.
#pragma once

#include <climits>
#include <cstdint>
#include <string_view>

#include "cache/base/result.h"
#include "cache/base/settings/config.h"
#include "cache/base/unique_fd.h"
#include "cache/region/region.h"

namespace cube::cache {

// Collects, notes what was reported, and writes to where CUBESHIM_STATS says. `pid` is for %p.
// A text for stderr is left out where nothing below a prefix was opened, unless the job
// `has_opened_many` other files.
void write_report(Region& region, std::uint32_t job, const base::Config& config, std::uint32_t pid,
                  bool has_opened_many = false);

// The same at the end of the job, once: the second call writes nothing. %p is the pid of the job's
// first process.
void write_last_report(Region& region, std::uint32_t job, const base::Config& config,
                       bool has_opened_many = false);

// The same where no process of the job has the cache.
void write_empty_report(const base::Config& config, std::uint32_t pid, bool has_opened_many);

// The file of such a pattern, to write behind what is there; `path` is its name. EPERM: it is no
// place for a report.
base::Result<base::UniqueFd> open_report_file(std::string_view pattern, std::uint32_t pid,
                                              char (&path)[PATH_MAX]);

// For periodic lines without a thread: true for one caller when the interval has passed.
bool report_interval_passed(Region& region, std::uint32_t job, std::uint64_t interval_seconds);

}  // namespace cube::cache
