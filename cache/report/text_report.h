// The report as a few lines for people (doc/CONFIG.md): what was served, what was not and why, and
// the time that this saved. Thread safety: pure functions. Allocates nothing.
#pragma once

#include <span>
#include <string>

#include "cache/report/job_totals.h"
#include "cache/report/report_text.h"

namespace cube::cache {

// Three lines, and one more for each of these that has figures to show: large files, wasted
// prefetches, a tier that lags or fails. A job that has opened no file has one line, which states
// the reason and names the `prefixes`.
ReportText report_as_text(const JobTotals& job, std::span<const std::string> prefixes = {});

}  // namespace cube::cache
