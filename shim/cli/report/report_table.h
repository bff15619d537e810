// The table of `cubeshim report`: the figures of jobs side by side. Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "shim/cli/report/report_file.h"

namespace cube::cli {

struct ReportRow {
  // The comparison with the first job. Counts have no mark if the jobs have opened different
  // numbers of files.
  enum class Mark { none, better, worse };
  std::string group;  // "Origin"; rows of a group are adjacent
  std::string name;
  std::vector<std::string> values;  // one for each job
  std::vector<std::string> ratios;  // each job relative to the first; empty for the first
  std::vector<Mark> marks;
};

// Returns the most important figures first, then all others that differ by more than chance.
std::vector<ReportRow> report_rows(const std::vector<JobReport>& jobs);
// Returns the name of a job in the table: "A", "B" ...
std::string letter_of(std::size_t job);
// Returns a text such as "reports/a.json (the last of 3 jobs in it)".
std::string title_of(const JobReport& job);

std::string report_table(const std::vector<JobReport>& jobs);

}  // namespace cube::cli
