// The bars of `cubeshim top`, and the short history beside them. Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace cube::cli {

// The meaning of a part of a line: whether a figure is good, or that it matters less.
enum class Paint : std::uint8_t { none, good, fair, bad, faint };

struct PaintedPart {
  std::size_t begin, end;  // bytes of the text
  Paint paint;
};

struct ScreenLine {
  enum class Look { plain, heading, selected, strong };
  std::string text;
  Look look = Look::plain;
  std::vector<PaintedPart> parts = {};
};

// A value is missing if it was not measured.
using GaugeHistory = std::deque<std::optional<double>>;

struct Gauge {
  const char* name;            // "memory"
  std::optional<double> full;  // how much of the bar is filled, 0 to 1
  std::string value;           // "5.3G/12.0G", in the bar
  Paint paint = Paint::none;
  std::string rest;        // after the bar
  GaugeHistory history{};  // 0 to 1, the newest last; instead of `rest`
};

// " hits   [|||||||||||      61.2%] __--==##". The line has at most `columns` characters.
ScreenLine line_of_gauge(const Gauge& gauge, std::size_t columns);
// True if the terminal shows UTF-8: the history then uses block characters instead of ASCII.
void draw_history_in_utf8(bool is_utf8);

// Cuts the line to this many characters.
void cut(ScreenLine& line, std::size_t columns);

}  // namespace cube::cli
