// Chooses addresses for the library's long-lived mappings in the program. The kernel places a
// mapping in the highest gap that is large enough. So a mapping of the library would often occupy a
// range that the program has just unmapped. A program with a single thread is allowed to unmap such
// a range a second time, or to map over it. So the library's mappings lie far below the program's.
// Thread-safe and async-signal-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cache/base/sanitizers.h"

namespace cube::base {

// Returns an address to pass to mmap without MAP_FIXED: the kernel chooses another address if this
// address is in use.
inline void* own_place(std::size_t bytes) {
  // ThreadSanitizer allows only some addresses.
  if (CUBE_TSAN) return nullptr;
  static constinit std::atomic<std::uintptr_t> given{0};
  constexpr std::uintptr_t k_grain = 64 << 10;  // the largest page of a kernel
  // Libraries lie near the top of the address space. The mappings share a room whose size is a 64th
  // of this library's address (2 TiB on most machines).
  const std::uintptr_t here = reinterpret_cast<std::uintptr_t>(&given) / k_grain * k_grain,
                       room = here / 64 / k_grain * k_grain;
  const std::uintptr_t at =
      given.fetch_add((bytes + k_grain - 1) / k_grain * k_grain, std::memory_order_relaxed);
  return reinterpret_cast<void*>(here - 2 * room + at % room);
}

}  // namespace cube::base
