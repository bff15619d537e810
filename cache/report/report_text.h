// The text of a report. The buffer has a fixed size, because nothing may be allocated; a longer
// text is cut off. Thread safety: none. Each report has its own buffer.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace cube::cache {

struct ReportText {
  char bytes[4352];
  std::size_t size = 0;
  std::string_view view() const { return {bytes, size}; }
};

template <typename... Args>
void append(ReportText& text, fmt::format_string<Args...> format, Args&&... args) {
  const std::size_t room = sizeof text.bytes - text.size;
  text.size += std::min(
      room,
      fmt::format_to_n(text.bytes + text.size, room, format, static_cast<Args&&>(args)...).size);
}

inline double mib(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// Appends a size: "17 bytes", "50.0 KiB", "440.1 MiB", "13.7 GiB".
inline void append_bytes(ReportText& text, std::uint64_t bytes) {
  if (bytes < 1024) return append(text, "{} byte{}", bytes, bytes == 1 ? "" : "s");
  constexpr const char* k_units[] = {"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; value >= 1023.95 && unit + 1 < std::size(k_units); value /= 1024) ++unit;
  append(text, "{:.1f} {}", value, k_units[unit]);
}

// Appends a time: "850 us", "2.1 ms", "12.6 s", "3.4 min", "2.1 h".
inline void append_time(ReportText& text, double ns) {
  constexpr struct {
    double ns, most;
    const char* name;
  } k_units[] = {
      {1e3, 1e3, "us"}, {1e6, 1e3, "ms"}, {1e9, 120, "s"}, {60e9, 120, "min"}, {3600e9, 1e18, "h"}};
  for (const auto& unit : k_units) {
    const double value = ns / unit.ns;
    if (value < unit.most)
      return append(text, "{:.{}f} {}", value, value < 99.95 ? 1 : 0, unit.name);
  }
}

}  // namespace cube::cache
