// Reports of jobs that CUBESHIM_STATS has written with CUBESHIM_STATS_FORMAT=json: one JSON object
// on each line. A job that reports while it runs (CUBESHIM_STATS_INTERVAL) has many lines, which
// show how its figures developed. Thread safety: pure functions.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace cube::cli {

// Counts since the job began.
struct CoursePoint {
  double seconds = 0, opens = 0, requests = 0, hits = 0, origin_operations = 0;
  bool is_full = false;  // some files were not served because the memory was full
};

struct JobReport {
  std::string path;
  std::size_t jobs_in_file = 1;  // `path` has the reports of this many jobs; this is the last
  std::map<std::string, double>
      values;  // of its last line, by the names in doc/CONFIG.md: "origin.opens"
  std::vector<CoursePoint> course;  // one point for each line, after one of zeros

  // Returns 0 if the report has no such figure.
  double value(const std::string& name) const;
  // The sum of an object such as "hits".
  double sum_of(std::string_view object) const;
  double hits() const { return sum_of("hits"); }
  double requests() const;
  // The cache's own requests to the origin, for files and for metadata, and opens that were not
  // served. The report does not show what the kernel read for those opens.
  double origin_operations() const;
};

// Returns false on failure; `why` says in one line what is wrong with the file.
bool read_report(const std::string& path, JobReport& report, std::string& why);

}  // namespace cube::cli
