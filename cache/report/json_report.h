// The report as one JSON object on one line (doc/CONFIG.md). Thread safety: pure functions. They
// allocate nothing.
#pragma once

#include "cache/report/job_totals.h"
#include "cache/report/report_text.h"

namespace cube::cache {

ReportText report_as_json(const JobTotals& job);

}  // namespace cube::cache
