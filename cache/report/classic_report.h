// The report as lines that existing tools read (doc/CONFIG.md, CUBESHIM_STATS_FORMAT=classic).
// Thread safety: pure functions. They allocate nothing.
#pragma once

#include <span>
#include <string>

#include "cache/report/job_totals.h"
#include "cache/report/report_text.h"

namespace cube::cache {

// Returns two lines of counts: since the last report, and in total. Lines about prefetching, large
// files, metadata and tiers follow. The last line is that of append_classic_served.
ReportText report_as_classic(const JobTotals& job, std::uint64_t last_requests,
                             std::uint64_t last_hits, std::span<const std::string> prefixes = {});

// Appends the line about opens that were not served, with the reasons and remedies. If no file
// below the prefixes was opened, the line names `prefixes`.
void append_classic_served(ReportText& text, const JobTotals& job,
                           std::span<const std::string> prefixes);

}  // namespace cube::cache
