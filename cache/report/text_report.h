// The report as a few lines of text (doc/CONFIG.md).
// Thread safety: pure functions. Allocates nothing.
#pragma once

#include <span>
#include <string>

#include "cache/report/collect.h"
#include "cache/report/report_text.h"

namespace cube::cache {

// The two lines that the field knows: since the last report, and in all. Then the lines of prefetching and of tiers, and last the
// one of append_served.
ReportText report_as_text(const JobTotals& job, std::uint64_t last_requests, std::uint64_t last_hits,
                          std::span<const std::string> prefixes = {});

// The line that tells which opens were not served, and the remedy. `prefixes` are named if nothing below them was opened.
void append_served(ReportText& text, const JobTotals& job, std::span<const std::string> prefixes);

}  // namespace cube::cache
