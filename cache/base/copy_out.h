// Copies bytes of the cache to a program's buffer. From some size on - three quarters of a core's share of the caches, or 1 MiB
// where that has just been measured - glibc's memcpy writes past the caches, and the program then reads its bytes from memory: 1
// MiB took 35 us in one piece and 26 us in four. Thread safety: as memcpy; async-signal-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace cube::base {

// The address of no bytes may be null, which memcpy does not allow.
inline void copy_out(void* to, const void* from, std::size_t n) {
  constexpr std::size_t k_piece = 256 << 10;
  for (std::size_t at = 0; at < n; at += k_piece)
    std::memcpy(static_cast<std::byte*>(to) + at, static_cast<const std::byte*>(from) + at, std::min(n - at, k_piece));
}

}  // namespace cube::base
