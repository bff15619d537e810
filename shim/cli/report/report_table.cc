#include "shim/cli/report/report_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "cache/report/figures.h"
#include "cache/report/report_text.h"
#include "shim/cli/printable.h"
#include "shim/cli/settings.h"

namespace cube::cli {
namespace {

using cache::Unit;
using Value = std::optional<double>;

std::string time_text(double ns) {
  cache::ReportText text;
  cache::append_time(text, ns);
  return std::string(text.view());
}

std::string text_of_value(Unit unit, double value) {
  switch (unit) {
    case Unit::bytes: return in_units(static_cast<std::uint64_t>(value));
    case Unit::share: return fmt::format("{:.1f} %", 100 * value);
    case Unit::us: return time_text(1e3 * value);
    case Unit::ms: return time_text(1e6 * value);
    case Unit::ns: return time_text(value);
    default: return fmt::format("{:.0f}", value);
  }
}

double share(double part, double whole) { return whole == 0 ? 0 : part / whole; }

// A value is missing if a job has no such figure, or if too little was measured.
struct KeyRow {
  const char* name;
  Unit unit;
  Value (*value)(const JobReport& job);
  std::set<std::string> figures = {};  // the figures it stands for
};

const std::vector<KeyRow>& key_rows() {
  static const std::vector<KeyRow> rows = {
      {"time of the job",
       Unit::ms,
       [](const JobReport& job) -> Value { return job.value("milliseconds"); },
       {"milliseconds"}},
      {"file opens",
       Unit::opens,
       [](const JobReport& job) -> Value { return job.value("opens"); },
       {"opens"}},
      {"file opens per second", Unit::opens,
       [](const JobReport& job) -> Value {
         return job.value("milliseconds") == 0
                    ? Value()
                    : 1000 * job.value("opens") / job.value("milliseconds");
       }},
      {"hit ratio",
       Unit::share,
       [](const JobReport& job) -> Value { return share(job.hits(), job.requests()); },
       {"hit_rate"}},
      {"not served", Unit::opens,
       [](const JobReport& job) -> Value { return job.sum_of("bypassed"); }},
      {"bytes to the program",
       Unit::bytes,
       [](const JobReport& job) -> Value { return job.value("bytes_served"); },
       {"bytes_served"}},
      {"operations at the origin", Unit::calls,
       [](const JobReport& job) -> Value { return job.origin_operations(); }},
      {"bytes from the origin",
       Unit::bytes,
       [](const JobReport& job) -> Value { return job.value("origin.bytes"); },
       {"origin.bytes"}},
      {"waited for the origin",
       Unit::ns,
       [](const JobReport& job) -> Value { return job.value("time_ns.misses"); },
       {"time_ns.misses"}}};
  return rows;
}

// Counts differ by chance, latencies by the width of their buckets.
bool differs(Unit unit, double least, double most) {
  const double by = most - least;
  switch (unit) {
    case Unit::share: return by >= 0.01;
    case Unit::bytes: return by >= (1 << 20) && by >= most / 10;
    case Unit::us: return by >= 1 && by >= most / 4;
    case Unit::ms: return by >= 100 && by >= most / 10;
    case Unit::ns: return by >= 1e8 && by >= most / 10;
    default: return by >= 10 && by >= most / 10;
  }
}

std::string ratio_text(Unit unit, Value first, Value value) {
  if (!first || !value) return "";
  if (unit == Unit::share) return fmt::format("{:+.1f}", 100 * (*value - *first));
  return *first == 0 ? "" : fmt::format("x{:.2f}", *value / *first);
}

ReportRow row_of_values(const std::string& name, Unit unit, const std::vector<Value>& values) {
  ReportRow row{name, {}, {}};
  for (const Value& value : values) {
    row.values.push_back(value ? text_of_value(unit, *value) : "-");
    row.ratios.push_back(&value == values.data() ? "" : ratio_text(unit, values[0], value));
  }
  return row;
}

}  // namespace

std::string letter_of(std::size_t job) {
  return job < 26 ? std::string(1, static_cast<char>('A' + job)) : std::to_string(job + 1);
}

std::string title_of(const JobReport& job) {
  return job.jobs_in_file == 1
             ? job.path
             : fmt::format("{} (the last of {} jobs in it)", job.path, job.jobs_in_file);
}

std::vector<ReportRow> report_rows(const std::vector<JobReport>& jobs) {
  std::vector<ReportRow> rows;
  std::set<std::string> told;
  std::vector<Value> values(jobs.size());
  for (const KeyRow& key : key_rows()) {
    std::transform(jobs.begin(), jobs.end(), values.begin(), key.value);
    rows.push_back(row_of_values(key.name, key.unit, values));
    told.insert(key.figures.begin(), key.figures.end());
  }
  for (const auto& figure : cache::figures()) {
    const std::string name =
        (figure.group.empty() ? "" : std::string(figure.group) + ".") + std::string(figure.name);
    if (told.contains(name)) continue;
    std::vector<double> numbers(jobs.size());
    std::transform(jobs.begin(), jobs.end(), numbers.begin(),
                   [&](const JobReport& job) { return job.value(name); });
    const auto [least, most] = std::minmax_element(numbers.begin(), numbers.end());
    if (!differs(figure.unit, *least, *most)) continue;
    values.assign(numbers.begin(), numbers.end());
    rows.push_back(row_of_values(name, figure.unit, values));
  }
  return rows;
}

std::string report_table(const std::vector<JobReport>& jobs) {
  std::string text, line;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    text += fmt::format("{}: {}\n", letter_of(i), printable(title_of(jobs[i])));
    line += fmt::format(" {:>12}{:{}}", letter_of(i), "", i == 0 ? 0 : 8);
  }
  const auto add = [&text](const std::string& name, std::string rest) {
    rest.erase(rest.find_last_not_of(' ') + 1);
    text += fmt::format("{:<26}{}\n", name, rest);
  };
  add("", line);
  for (const ReportRow& row : report_rows(jobs)) {
    line.clear();
    for (std::size_t i = 0; i < jobs.size(); ++i)
      line += fmt::format(" {:>12}", row.values[i]) +
              (i == 0 ? "" : fmt::format(" {:<7}", row.ratios[i]));
    add(row.name, line);
  }
  return text;
}

}  // namespace cube::cli
