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

enum class Better { neither, more, less };

constexpr const char* k_summary = "Summary";

// The headings of the groups of figures, by the object of a figure.
constexpr struct {
  std::string_view object;
  const char* heading;
} k_headings[] = {{"", "Opens"},
                  {"hits", "Opens"},
                  {"bypassed", "Not served"},
                  {"origin", "Origin"},
                  {"bucket", "Object store"},
                  {"metadata", "Metadata"},
                  {"prefetch", "Prefetching"},
                  {"blocks", "Large files"},
                  {"ram", "Memory"},
                  {"disk", "Disk"},
                  {"cluster", "Cluster"},
                  {"time_ns", "Times"},
                  {"latency_us.hit", "Times"},
                  {"latency_us.miss", "Times"}};

std::string heading_of(std::string_view object) {
  for (const auto& row : k_headings) {
    if (row.object == object) return row.heading;
  }
  return "Other";
}

// Figures for which more is better in every job. Shorter times are always better.
constexpr std::string_view k_more_is_better[] = {
    "hits.ram",       "hits.disk",   "hits.cluster",      "hit_rate",
    "stat_hits",      "calls_saved", "metadata.listings", "metadata.stats",
    "prefetch.early", "blocks.hits", "blocks.used"};
constexpr std::string_view k_less_is_better[] = {"misses",
                                                 "prefetch.late",
                                                 "prefetch.wasted",
                                                 "prefetch.duplicate",
                                                 "blocks.misses",
                                                 "blocks.kernel",
                                                 "blocks.origin",
                                                 "blocks.wasted",
                                                 "blocks.faulted",
                                                 "metadata.read",
                                                 "metadata.revalidations",
                                                 "cluster.late",
                                                 "cluster.outdated",
                                                 "cluster.damaged",
                                                 "cluster.refused",
                                                 "cluster.trips",
                                                 "cluster.skipped",
                                                 "materialized",
                                                 "locked"};

Better better_of(std::string_view group, const std::string& name, Unit unit) {
  const auto has = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  if (has(k_more_is_better)) return Better::more;
  const bool is_time = unit == Unit::us || unit == Unit::ms || unit == Unit::ns;
  return has(k_less_is_better) || is_time || group == "origin" || group == "bucket" ||
                 group == "bypassed"
             ? Better::less
             : Better::neither;
}

// A key row of the table. A value is missing if a job lacks the figure, or if too little was
// measured.
struct KeyRow {
  const char* name;
  Unit unit;
  Better better;
  Value (*value)(const JobReport& job);
  std::set<std::string> figures = {};  // the figures that this row represents
};

const std::vector<KeyRow>& key_rows() {
  static const std::vector<KeyRow> rows = {
      {"time of the job",
       Unit::ms,
       Better::less,
       [](const JobReport& job) -> Value { return job.value("milliseconds"); },
       {"milliseconds"}},
      {"file opens",
       Unit::opens,
       Better::neither,
       [](const JobReport& job) -> Value { return job.value("opens"); },
       {"opens"}},
      {"file opens per second", Unit::opens, Better::more,
       [](const JobReport& job) -> Value {
         return job.value("milliseconds") == 0
                    ? Value()
                    : 1000 * job.value("opens") / job.value("milliseconds");
       }},
      {"hit ratio",
       Unit::share,
       Better::more,
       [](const JobReport& job) -> Value { return share(job.hits(), job.requests()); },
       {"hit_rate"}},
      {"not served", Unit::opens, Better::less,
       [](const JobReport& job) -> Value { return job.sum_of("bypassed"); }},
      {"memory in use", Unit::share, Better::neither,
       [](const JobReport& job) -> Value {
         return job.value("ram.capacity") == 0
                    ? Value()
                    : share(job.value("ram.used"), job.value("ram.capacity"));
       }},
      {"bytes to the program",
       Unit::bytes,
       Better::neither,
       [](const JobReport& job) -> Value { return job.value("bytes_served"); },
       {"bytes_served"}},
      {"operations at the origin", Unit::calls, Better::less,
       [](const JobReport& job) -> Value { return job.origin_operations(); }},
      {"bytes from the origin",
       Unit::bytes,
       Better::less,
       [](const JobReport& job) -> Value { return job.value("origin.bytes"); },
       {"origin.bytes"}},
      {"waited for the origin",
       Unit::ns,
       Better::less,
       [](const JobReport& job) -> Value { return job.value("time_ns.misses"); },
       {"time_ns.misses"}}};
  return rows;
}

// True if two values differ by more than chance. Counts vary by chance; latencies vary by the width
// of their buckets.
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

// True if the two jobs have opened about as many files, so that their counts can be compared.
bool have_opened_alike(const JobReport& one, const JobReport& other) {
  return !differs(Unit::opens, std::min(one.value("opens"), other.value("opens")),
                  std::max(one.value("opens"), other.value("opens")));
}

bool is_count(Unit unit) {
  return unit == Unit::opens || unit == Unit::calls || unit == Unit::bytes || unit == Unit::files ||
         unit == Unit::records;
}

ReportRow row_of_values(std::string group, const std::string& name, Unit unit, Better better,
                        const std::vector<Value>& values, const std::vector<JobReport>& jobs) {
  ReportRow row{std::move(group), name, {}, {}, {}};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Value &first = values[0], &value = values[i];
    row.values.push_back(value ? text_of_value(unit, *value) : "-");
    row.ratios.push_back(i == 0 ? "" : ratio_text(unit, first, value));
    const bool is_judged =
        better != Better::neither && first && value &&
        differs(unit, std::min(*first, *value), std::max(*first, *value)) &&
        (!is_count(unit) || better == Better::more || have_opened_alike(jobs[0], jobs[i]));
    row.marks.push_back(!is_judged                                      ? ReportRow::Mark::none
                        : (*value > *first) == (better == Better::more) ? ReportRow::Mark::better
                                                                        : ReportRow::Mark::worse);
  }
  return row;
}

// Returns the time after which files were not served because the memory was full.
std::string time_of_full(const JobReport& job) {
  if (job.value("bypassed.full") == 0) return "no";
  // A job that reported only at its end has one point after the point of zeros.
  const auto full = std::find_if(job.course.begin(), job.course.end(),
                                 [](const CoursePoint& point) { return point.is_full; });
  return job.course.size() <= 2 || full == job.course.end()
             ? "yes"
             : fmt::format("by {}", time_text(1e9 * full->seconds));
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
    rows.push_back(row_of_values(k_summary, key.name, key.unit, key.better, values, jobs));
    told.insert(key.figures.begin(), key.figures.end());
  }
  if (std::any_of(jobs.begin(), jobs.end(),
                  [](const JobReport& job) { return job.value("bypassed.full") != 0; })) {
    ReportRow row{k_summary,
                  "memory was full",
                  {},
                  std::vector<std::string>(jobs.size()),
                  std::vector<ReportRow::Mark>(jobs.size())};
    for (const JobReport& job : jobs) row.values.push_back(time_of_full(job));
    rows.push_back(std::move(row));
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
    rows.push_back(row_of_values(heading_of(figure.group), name, figure.unit,
                                 better_of(figure.group, name, figure.unit), values, jobs));
  }
  // The rows of a heading may come from several objects.
  std::vector<std::string> order;
  for (const ReportRow& row : rows) {
    if (std::find(order.begin(), order.end(), row.group) == order.end()) order.push_back(row.group);
  }
  std::stable_sort(rows.begin(), rows.end(), [&](const ReportRow& one, const ReportRow& other) {
    return std::find(order.begin(), order.end(), one.group) <
           std::find(order.begin(), order.end(), other.group);
  });
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
