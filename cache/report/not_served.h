// Parts of the report's lines about opens that were not served. Thread safety: pure functions. They
// allocate nothing.
#pragma once

#include <span>
#include <string>

#include "cache/report/job_totals.h"
#include "cache/report/report_text.h"

namespace cube::cache {

// Appends the reasons, such as "2 of files larger than CUBESHIM_MAX_FILE (raise it, or see
// CUBESHIM_BLOCK), 3 for writing". With `with_paths`, also the first path for each reason: "3 for
// writing, first /mnt/data/log". Appends nothing if all opens were served.
void append_reasons(ReportText& text, const JobTotals& job, bool with_paths);

// Appends the calls that materialized served files: " (for flock 2, sendfile 1)".
void append_materializing_calls(ReportText& text, const JobTotals& job);

// Appends `before` and the reason why the job has seen no file below a prefix: a file was opened by
// a path outside all prefixes, or no file below `prefixes` was opened. If the reason is not known,
// appends nothing.
void append_not_seen(ReportText& text, const char* before, const JobTotals& job,
                     std::span<const std::string> prefixes);

}  // namespace cube::cache
