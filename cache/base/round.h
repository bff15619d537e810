// Rounds sizes and offsets to multiples of a unit. Thread safety: pure functions.
#pragma once

#include <cstdint>

namespace cube::base {

constexpr std::uint64_t round_down(std::uint64_t n, std::uint64_t unit) { return n / unit * unit; }
constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t unit) {
  return round_down(n + unit - 1, unit);
}

}  // namespace cube::base
