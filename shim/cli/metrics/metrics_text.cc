#include "shim/cli/metrics/metrics_text.h"

#include <fmt/core.h>

#include <string_view>

namespace cube::cli {
namespace {

std::string escaped(std::string_view text, bool is_quoted) {
  std::string result;
  for (const char c : text) {
    if (c == '\n') {
      result += "\\n";
    } else {
      if (c == '\\' || (is_quoted && c == '"')) result += '\\';
      result += c;
    }
  }
  return result;
}

using Labels = std::vector<std::pair<std::string, std::string>>;

std::string line(const std::string& name, const Labels& labels, const std::string& value) {
  std::string text;
  for (const auto& [label, of_it] : labels)
    text += fmt::format("{}{}=\"{}\"", text.empty() ? "" : ",", label, escaped(of_it, true));
  return fmt::format("{}{} {}\n", name, text.empty() ? "" : "{" + text + "}", value);
}

std::string lines_of_histogram(const std::string& name, const MetricSample& sample) {
  std::string text;
  Labels labels = sample.labels;
  labels.emplace_back("le", "");
  for (const auto& bucket : sample.buckets) {
    labels.back().second = fmt::format("{}", bucket.bound);
    text += line(name + "_bucket", labels, fmt::format("{}", bucket.count));
  }
  labels.back().second = "+Inf";
  text += line(name + "_bucket", labels, fmt::format("{}", sample.count));
  text += line(name + "_sum", sample.labels, fmt::format("{}", sample.sum));
  return text + line(name + "_count", sample.labels, fmt::format("{}", sample.count));
}

std::string_view type_of(MetricKind kind) {
  return kind == MetricKind::counter ? "counter"
         : kind == MetricKind::gauge ? "gauge"
                                     : "histogram";
}

}  // namespace

std::string metrics_text(const std::vector<MetricFamily>& families) {
  std::string text;
  for (const MetricFamily& family : families) {
    text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", family.name, escaped(family.help, false),
                        family.name, type_of(family.kind));
    for (const MetricSample& sample : family.samples)
      text += family.kind == MetricKind::histogram
                  ? lines_of_histogram(family.name, sample)
                  : line(family.name, sample.labels, fmt::format("{}", sample.value));
  }
  return text;
}

}  // namespace cube::cli
