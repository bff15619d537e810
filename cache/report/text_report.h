// The report as a few lines for people (doc/CONFIG.md): what was served, what was not served and
// why, and the time that the cache saved. Thread safety: pure functions. They allocate nothing.
#pragma once

#include <span>
#include <string>

#include "cache/report/job_totals.h"
#include "cache/report/report_text.h"

namespace cube::cache {

// Returns three lines. Further lines follow if there were large files or wasted prefetches, or if a
// tier lags or fails. If the job has opened no file, there is only one line, which states the
// reason and names the `prefixes`.
ReportText report_as_text(const JobTotals& job, std::span<const std::string> prefixes = {});

}  // namespace cube::cache
