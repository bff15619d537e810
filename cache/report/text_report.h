// The report as a few lines for people (doc/CONFIG.md): what was served, what was not served and
// why, and the time that the cache saved. Thread safety: pure functions. Allocates nothing.
#pragma once

#include <span>
#include <string>

#include "cache/report/job_totals.h"
#include "cache/report/report_text.h"

namespace cube::cache {

// Three lines, and further lines about large files, wasted prefetches, and a tier that lags or
// fails, if there are any. A job that has opened no file has a single line, which states the reason
// and names the `prefixes`.
ReportText report_as_text(const JobTotals& job, std::span<const std::string> prefixes = {});

}  // namespace cube::cache
