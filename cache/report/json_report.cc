#include "cache/report/json_report.h"

#include "cache/report/figures.h"

namespace cube::cache {
namespace {

// The first name of a path: "latency_us" in "latency_us.hit".
std::string_view first_of(std::string_view path) { return path.substr(0, path.find('.')); }

std::string_view rest_of(std::string_view path) {
  path.remove_prefix(std::min(path.size(), first_of(path).size() + 1));
  return path;
}

// Closes the objects of the path `from` that are not in the path `to`, and opens the other objects
// of `to`.
void change_object(ReportText& text, std::string_view from, std::string_view to) {
  while (!from.empty() && first_of(from) == first_of(to)) {
    from = rest_of(from);
    to = rest_of(to);
  }
  for (; !from.empty(); from = rest_of(from)) append(text, "}}");
  if (!text.view().ends_with('{')) append(text, ",");
  for (; !to.empty(); to = rest_of(to)) append(text, R"("{}":{{)", first_of(to));
}

void append_value(ReportText& text, const Figure& figure, const JobTotals& job) {
  if (figure.is_count()) {
    append(text, "{}", figure.count_of(job));
  } else if (figure.unit == Unit::us) {
    append(text, "{:.3f}", figure.real_of(job));
  } else {
    append(text, "{}", figure.real_of(job));
  }
}

}  // namespace

ReportText report_as_json(const JobTotals& job) {
  ReportText text;
  append(text, "{{");
  std::string_view group;
  for (const Figure& figure : figures()) {
    if (!figure.is_in(job)) continue;
    change_object(text, group, figure.group);
    group = figure.group;
    append(text, R"("{}":)", figure.name);
    append_value(text, figure, job);
  }
  for (; !group.empty(); group = rest_of(group)) append(text, "}}");
  append(text, "}}\n");
  return text;
}

}  // namespace cube::cache
