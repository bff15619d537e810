// Limits the bytes per second, and allows bursts of at most a fifth of a second. The processes of a
// node share the word `free_ns`. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

namespace cube::cache {

class TokenBucket {
 public:
  static bool take(std::atomic<std::uint64_t>& free_ns, std::uint64_t now_ns, std::uint64_t bytes,
                   std::uint64_t per_second);
};

}  // namespace cube::cache
