#include "shim/cli/top/top_gauge.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <string_view>

namespace cube::cli {
namespace {

constexpr std::size_t k_name_width = 7, k_widest_bar = 60, k_history = 24;
constexpr const char* k_blocks[] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                    "\u2585", "\u2586", "\u2587", "\u2588"};
constexpr const char* k_ascii[] = {"_", ".", "-", "=", "+", "*", "%", "#"};
bool g_is_utf8 = false;

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

std::string history_text(const GaugeHistory& history, std::size_t most) {
  std::string text;
  const std::size_t n = std::min(history.size(), most);
  for (auto at = history.end() - static_cast<std::ptrdiff_t>(n); at != history.end(); ++at) {
    constexpr double k_levels = std::size(k_blocks);
    const auto level = static_cast<std::size_t>(std::clamp(at->value_or(0) * k_levels, 0.0, 7.0));
    text += !*at ? " " : g_is_utf8 ? k_blocks[level] : k_ascii[level];
  }
  return text;
}

}  // namespace

void draw_history_in_utf8(bool is_utf8) { g_is_utf8 = is_utf8; }

void cut(ScreenLine& line, std::size_t columns) {
  std::size_t at = 0, characters = 0;
  for (; at < line.text.size(); ++at) {
    if (begins_character(line.text[at]) && characters++ == columns) break;
  }
  line.text.resize(at);
  for (PaintedPart& part : line.parts) {
    part.begin = std::min(part.begin, at);
    part.end = std::min(part.end, at);
  }
}

ScreenLine line_of_gauge(const Gauge& gauge, std::size_t columns) {
  ScreenLine line{fmt::format("{:<{}}[", gauge.name, k_name_width)};
  const std::size_t beside = gauge.history.empty() ? gauge.rest.size() : k_history;
  const std::size_t taken = line.text.size() + 2 + beside;
  const std::size_t width =
      std::clamp(columns - std::min(columns, taken), gauge.value.size() + 1, k_widest_bar);
  std::string bar = fmt::format("{:>{}}", gauge.value, width);
  const auto filled = static_cast<std::size_t>(std::clamp(gauge.full.value_or(0), 0.0, 1.0) *
                                               static_cast<double>(width));
  for (std::size_t i = 0; i < filled && bar[i] == ' '; ++i) bar[i] = '|';
  line.parts.push_back({line.text.size(), line.text.size() + filled, gauge.paint});
  line.text += bar + "] ";
  const std::size_t begin = line.text.size();
  line.text += gauge.history.empty() ? gauge.rest : history_text(gauge.history, k_history);
  if (!gauge.history.empty()) line.parts.push_back({begin, line.text.size(), gauge.paint});
  cut(line, columns);
  return line;
}

}  // namespace cube::cli
