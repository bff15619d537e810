// Reads the reports of jobs that ran with CUBESHIM_STATS_FORMAT=json and wrote the report to a file
// (CUBESHIM_STATS). A report has one JSON object per line. If a job reported at intervals
// (CUBESHIM_STATS_INTERVAL), its report has many lines, which show the course of its figures.
// Thread safety: pure functions.
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
  std::size_t jobs_in_file = 1;  // the number of jobs in the file; the last job is reported
  std::map<std::string, double>
      values;  // the figures of the last line, by name (doc/CONFIG.md): "origin.opens"
  std::vector<CoursePoint> course;  // a point of zeros, then a point for each line

  // Returns 0 if the report has no such figure.
  double value(const std::string& name) const;
  // Returns the sum of the figures in an object such as "hits".
  double sum_of(std::string_view object) const;
  double hits() const { return sum_of("hits"); }
  double requests() const;
  // Returns the number of the cache's own requests to the origin, for files and for metadata, plus
  // the opens that were not served. The report does not show the kernel's reads after such opens.
  double origin_operations() const;
};

// On failure, returns false, and `why` says in one line what is wrong with the file.
bool read_report(const std::string& path, JobReport& report, std::string& why);

}  // namespace cube::cli
