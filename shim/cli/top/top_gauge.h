// The bars of `cubeshim top`, and the short histories beside them. Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace cube::cli {

// The meaning of a part of a line: a good, fair or bad figure, or a less important part.
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

// A value is empty if it was not measured.
using GaugeHistory = std::deque<std::optional<double>>;

struct Gauge {
  const char* name;            // "memory"
  std::optional<double> full;  // the filled share of the bar, 0 to 1
  std::string value;           // the text in the bar: "5.3G/12.0G"
  Paint paint = Paint::none;
  std::string rest;        // the text after the bar
  GaugeHistory history{};  // replaces `rest`; 0 to 1, the newest last
};

// Returns a line of at most `columns` characters, such as " hits [|||||| 61.2%] __--==##".
ScreenLine line_of_gauge(const Gauge& gauge, std::size_t columns);
// If `is_utf8` is true, histories use block characters instead of ASCII.
void draw_history_in_utf8(bool is_utf8);

// Truncates the line to this many characters.
void cut(ScreenLine& line, std::size_t columns);

}  // namespace cube::cli
