#include "shim/cli/report/report_chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace cube::cli {
namespace {

constexpr double k_chart_width = 760, k_chart_height = 220, k_left = 64, k_right = 12, k_top = 10,
                 k_bottom = 30;
constexpr int k_most_ticks = 5;

// Returns a step of 1, 2 or 5 times a power of ten.
double tick_step(double top) {
  const double rough = std::max(top, 1e-9) / k_most_ticks,
               power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

std::string tick_text(double value) {
  if (value >= 1e6) return fmt::format("{:g}M", value / 1e6);
  return value >= 1e4 ? fmt::format("{:g}k", value / 1e3) : fmt::format("{:g}", value);
}

}  // namespace

std::string html_text(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      default: safe += (static_cast<unsigned char>(c) < ' ' || c == '\x7f') ? '?' : c;
    }
  }
  return safe;
}

std::string chart_svg(const Chart& chart) {
  double end = 0, top = chart.least_top;
  for (const ChartLine& line : chart.lines) {
    for (const auto& point : line.points) {
      end = std::max(end, point.seconds);
      top = std::max(top, point.value);
    }
  }
  const double x_step = tick_step(end), y_step = tick_step(top);
  end = std::max(end, x_step);
  top = std::max(std::ceil(top / y_step - 1e-9) * y_step, y_step);
  const auto x_of = [&](double seconds) {
    return k_left + seconds / end * (k_chart_width - k_left - k_right);
  };
  const auto y_of = [&](double value) {
    return k_chart_height - k_bottom - value / top * (k_chart_height - k_top - k_bottom);
  };
  std::string svg =
      fmt::format("<h2>{}</h2>\n<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n",
                  html_text(chart.title), k_chart_width, k_chart_height, html_text(chart.title));
  for (int i = 0; i <= std::lround(top / y_step); ++i) {
    const double value = i * y_step;
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/><text x=\"{3}\" "
        "y=\"{4:.1f}\" "
        "text-anchor=\"end\">{5}{6}</text>\n",
        k_left, k_chart_width - k_right, y_of(value), k_left - 6, y_of(value) + 4, tick_text(value),
        chart.unit);
  }
  for (int i = 0; i <= static_cast<int>(end / x_step + 1e-3); ++i)
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{} s</text>\n",
                       x_of(i * x_step), k_chart_height - 10, tick_text(i * x_step));
  for (std::size_t i = 0; i < chart.lines.size(); ++i) {
    std::string path;
    for (const auto& point : chart.lines[i].points)
      path += fmt::format("{}{:.1f} {:.1f}", point.is_joined && !path.empty() ? 'L' : 'M',
                          x_of(point.seconds), y_of(point.value));
    svg += fmt::format("<path class=\"line c{}\" d=\"{}\"><title>{}</title></path>\n", i % 6, path,
                       html_text(chart.lines[i].name));
  }
  return svg + "</svg>\n";
}

}  // namespace cube::cli
