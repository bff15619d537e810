// A segment that all processes of the node fill: OPEN and without owner. One word, for the region's header.
// Thread safety: a plain value.
#pragma once

#include <cstdint>

namespace cube::cache {

struct Filling {
  std::uint32_t segment = 0, generation = 0;
  bool is_any = false;

  static Filling of_word(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word) - 1, static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word) != 0};
  }
  std::uint64_t as_word() const { return is_any ? std::uint64_t{generation} << 32 | (segment + 1) : 0; }
};

}  // namespace cube::cache
