#include "shim/cli/report/report_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "cache/base/error_text.h"
#include "cache/base/unique_fd.h"
#include "cache/report/figures.h"

namespace cube::cli {
namespace {

constexpr std::size_t k_most_of_report = 1 << 30;
// A report without these figures cannot be compared. ("milliseconds" is not among them, because
// older versions lack it.)
constexpr const char* k_needed[] = {"opens", "misses", "hits.ram", "origin.opens"};

// Reads the file into `text`. Returns an error, or an empty string on success.
std::string read_text(const std::string& path, std::string& text) {
  const auto fd = base::open_fd(path.c_str(), O_RDONLY | O_NONBLOCK);
  if (!fd) return base::text_of_error(fd.error().value);
  struct ::stat st {};
  if (fstat(fd->get(), &st) != 0) return base::text_of_error(errno);
  if (S_ISDIR(st.st_mode)) return "is a directory";
  if (!S_ISREG(st.st_mode)) return "is not a regular file";
  char some[1 << 16];
  for (ssize_t n = 0; (n = read(fd->get(), some, sizeof some)) != 0;) {
    if (n < 0) return base::text_of_error(errno);
    text.append(some, static_cast<std::size_t>(n));
    if (text.size() > k_most_of_report) return "is too large for a report";
  }
  return {};
}

// Stores the figures of the object in `values`. Returns false if a figure has an impossible value.
bool flatten(const nlohmann::json& object, const std::string& before,
             std::map<std::string, double>& values) {
  constexpr double k_largest = 0x1p64;
  for (const auto& [name, value] : object.items()) {
    if (value.is_object()) {
      // The objects of a report are two levels deep. Deeper objects are ignored.
      if (std::count(before.begin(), before.end(), '.') < 3 &&
          !flatten(value, before + name + ".", values))
        return false;
    } else if (value.is_number()) {
      const double number = values[before + name] = value.get<double>();
      if (!(number >= 0 && number <= k_largest)) return false;
    }
  }
  return true;
}

// Parses the line into `values`. Returns an error, or an empty string on success.
std::string read_line(std::string_view line, std::map<std::string, double>& values) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (line.starts_with("cubeshim: "))
    return "a report as text: CUBESHIM_STATS_FORMAT=json writes one that can be compared";
  if (json.is_discarded() && line.starts_with('{'))
    return "a JSON object without its end: was it cut off?";
  if (!json.is_object())
    return "no report of a job: CUBESHIM_STATS and CUBESHIM_STATS_FORMAT=json write one";
  if (!flatten(json, "", values))
    return "no report of a job: it has a figure that is negative or too large";
  for (const char* const name : k_needed) {
    if (!values.contains(name)) return fmt::format("no report of a job: it has no field {}", name);
  }
  if (!values.contains("milliseconds"))
    return "a report of another version: it has no field milliseconds";
  return {};
}

}  // namespace

double JobReport::value(const std::string& name) const {
  const auto found = values.find(name);
  return found == values.end() ? 0 : found->second;
}

double JobReport::sum_of(std::string_view object) const {
  const std::string begin = std::string(object) + ".";
  double sum = 0;
  for (auto at = values.lower_bound(begin); at != values.end() && at->first.starts_with(begin);
       ++at)
    sum += at->second;
  return sum;
}

double JobReport::requests() const {
  double sum = hits() + value("misses");
  for (const auto& bypassed : cache::k_bypassed)
    sum += bypassed.is_request ? value(std::string(bypassed.place)) : 0;
  return sum;
}

double JobReport::origin_operations() const {
  return value("origin.opens") + value("origin.reads") + value("origin.stats") +
         value("metadata.read") + value("metadata.revalidations") + value("metadata.gathered") +
         sum_of("bypassed");
}

bool read_report(const std::string& path, JobReport& report, std::string& why) {
  std::string text;
  report = {};
  report.path = path;
  report.course.resize(1);
  if (const std::string trouble = read_text(path, text); !trouble.empty()) {
    why = fmt::format("{}: {}", path, trouble);
    return false;
  }
  std::size_t number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    report.values.clear();
    if (const std::string trouble = read_line(line, report.values); !trouble.empty()) {
      why = fmt::format("{}, line {}: {}", path, number, trouble);
      return false;
    }
    const CoursePoint point = {report.value("milliseconds") / 1000,
                               report.value("opens"),
                               report.requests(),
                               report.hits(),
                               report.origin_operations(),
                               report.value("bypassed.full") != 0};
    const CoursePoint& last = report.course.back();
    if (point.seconds < last.seconds || point.opens < last.opens) {
      report.course.assign(1, {});
      ++report.jobs_in_file;
    }
    report.course.push_back(point);
  }
  if (report.course.size() == 1) why = fmt::format("{}: is empty", path);
  return report.course.size() > 1;
}

}  // namespace cube::cli
