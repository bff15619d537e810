#include "shim/cli/report/report_page.h"

#include <fmt/core.h>

#include <algorithm>

#include "shim/cli/report/report_chart.h"
#include "shim/cli/report/report_table.h"

namespace cube::cli {
namespace {

// A history with more points is drawn in this many steps.
constexpr std::size_t k_most_points = 400;

constexpr const char* k_head = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>cubeshim report</title>
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 800px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.4em; } h2 { font-size: 1.05em; margin: 1.6em 0 .3em; }
table { border-collapse: collapse; }
td, th { padding: .15em .7em; text-align: right; font-variant-numeric: tabular-nums; }
td:first-child, th:first-child { text-align: left; padding-left: 0; }
tr + tr { border-top: 1px solid #8884; }
td small { opacity: .7; margin-left: .6em; } tbody th { padding-top: 1em; }
.better small { opacity: 1; color: #1a7f37; color: light-dark(#1a7f37, #4ac26b); }
.worse small { opacity: 1; color: #b42318; color: light-dark(#b42318, #ff7b72); }
svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: currentColor; }
.grid { stroke: #8886; stroke-width: 1; }
.line { fill: none; stroke-width: 1.8; stroke-linecap: round; }
.c0 { stroke: #1f77b4; } .c1 { stroke: #e0701a; } .c2 { stroke: #2a9d4a; } .c3 { stroke: #c23b3b; }
.c4 { stroke: #8a63b5; } .c5 { stroke: #8b6a55; }
.key { display: inline-block; width: 1.6em; height: .6em; vertical-align: middle; }
</style>
</head>
<body>
<h1>cubeshim report</h1>
)";

std::vector<CoursePoint> thinned(const std::vector<CoursePoint>& course) {
  const std::size_t step = (course.size() + k_most_points - 1) / k_most_points;
  std::vector<CoursePoint> some;
  for (std::size_t i = 0; i < course.size(); i += step) some.push_back(course[i]);
  if ((course.size() - 1) % step != 0) some.push_back(course.back());
  return some;
}

// Returns a line with a value for each interval between two points. An interval without opens has
// no value.
template <typename ValueOf>
ChartLine line_of(const JobReport& job, std::size_t number, ValueOf value_of) {
  ChartLine line{fmt::format("{}: {}", letter_of(number), title_of(job)), {}};
  const auto course = thinned(job.course);
  bool is_joined = false;
  for (std::size_t i = 1; i < course.size(); ++i) {
    const CoursePoint &from = course[i - 1], &to = course[i];
    double value = 0;
    // Processes that end at the same time write reports with the same time.
    if (to.seconds - from.seconds < 1e-3) continue;
    const bool is_known = value_of(from, to, value);
    if (is_known) line.points.push_back({to.seconds, value, is_joined});
    is_joined = is_known;
  }
  return line;
}

std::string charts(const std::vector<JobReport>& jobs) {
  Chart ratio{"Hit ratio", " %", 100, {}}, opens{"Files opened per second", "", 1, {}};
  Chart origin{"Operations at the origin per second", "", 1, {}};
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    ratio.lines.push_back(
        line_of(jobs[i], i, [](const CoursePoint& from, const CoursePoint& to, double& value) {
          const double requests = to.requests - from.requests;
          if (requests > 0) value = std::clamp(100 * (to.hits - from.hits) / requests, 0.0, 100.0);
          return requests > 0;
        }));
    opens.lines.push_back(
        line_of(jobs[i], i, [](const CoursePoint& from, const CoursePoint& to, double& value) {
          value = (to.opens - from.opens) / (to.seconds - from.seconds);
          return true;
        }));
    origin.lines.push_back(
        line_of(jobs[i], i, [](const CoursePoint& from, const CoursePoint& to, double& value) {
          value = std::max(0.0, to.origin_operations - from.origin_operations) /
                  (to.seconds - from.seconds);
          return true;
        }));
  }
  return chart_svg(ratio) + chart_svg(opens) + chart_svg(origin);
}

std::string table(const std::vector<JobReport>& jobs) {
  std::string html = "<table>\n<tr><th></th>";
  for (std::size_t i = 0; i < jobs.size(); ++i) html += fmt::format("<th>{}</th>", letter_of(i));
  html += "</tr>\n";
  std::string group;
  for (const ReportRow& row : report_rows(jobs)) {
    if (row.group != group)
      html += fmt::format("{}<tbody>\n<tr><th colspan=\"{}\">{}</th></tr>\n",
                          group.empty() ? "" : "</tbody>\n", jobs.size() + 1, row.group);
    group = row.group;
    html += fmt::format("<tr><td>{}</td>", html_text(row.name));
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      // A word in addition to the colour, for readers who cannot distinguish the colours.
      const char* const mark = row.marks[i] == ReportRow::Mark::better  ? "better"
                               : row.marks[i] == ReportRow::Mark::worse ? "worse"
                                                                        : "";
      html += fmt::format("<td class=\"{}\">{}", mark, row.values[i]);
      if (!row.ratios[i].empty() || *mark != '\0')
        html += fmt::format("<small>{}{}{}</small>", row.ratios[i],
                            row.ratios[i].empty() || *mark == '\0' ? "" : " ", mark);
      html += "</td>";
    }
    html += "</tr>\n";
  }
  return html + "</tbody>\n</table>\n";
}

}  // namespace

std::string report_page(const std::vector<JobReport>& jobs) {
  std::string html = std::string(k_head) + "<p>";
  for (std::size_t i = 0; i < jobs.size(); ++i)
    html += fmt::format(
        "<svg class=\"key\" viewBox=\"0 0 10 4\"><path class=\"line c{}\" d=\"M0 2L10 2\"/></svg> "
        "{}: {}<br>\n",
        i % 6, letter_of(i), html_text(title_of(jobs[i])));
  html += "</p>\n" + table(jobs);
  const bool is_course =
      std::any_of(jobs.begin(), jobs.end(), [](const auto& job) { return job.course.size() > 2; });
  html += is_course
              ? charts(jobs)
              : "<p>These jobs reported only at their end, so there is nothing to draw over time. "
                "With CUBESHIM_STATS_INTERVAL=1, a job also reports each second.</p>\n";
  return html + "</body>\n</html>\n";
}

}  // namespace cube::cli
