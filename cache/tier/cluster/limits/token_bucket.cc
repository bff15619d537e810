#include "cache/tier/cluster/limits/token_bucket.h"

#include <algorithm>

#include "cache/base/clock.h"

namespace cube::cache {
bool TokenBucket::take(std::atomic<std::uint64_t>& free_ns, std::uint64_t now_ns,
                       std::uint64_t bytes, std::uint64_t per_second) {
  if (per_second == 0) return false;
  constexpr std::uint64_t k_burst_ns = base::k_ns_per_s / 5;
  const auto ns_of = [&](std::uint64_t n) {
    return static_cast<std::uint64_t>(static_cast<double>(n) * 1e9 /
                                      static_cast<double>(per_second));
  };
  constexpr std::uint64_t k_large = 64 << 20, k_year_ns = 365 * 86400 * base::k_ns_per_s;
  const std::uint64_t cost = std::min(ns_of(bytes), k_year_ns);
  // The latest time that the word can contain if it is not corrupt.
  const std::uint64_t latest =
      now_ns + k_burst_ns + std::min(std::max(ns_of(k_large), cost), k_year_ns);
  std::uint64_t free = free_ns.load(std::memory_order_relaxed);
  do {
    // If the word is corrupt, no thread waits for its time.
    const std::uint64_t begin = free > latest ? now_ns : std::max(free, now_ns);
    if (begin > now_ns + k_burst_ns) return false;
    if (free_ns.compare_exchange_weak(free, begin + cost, std::memory_order_relaxed)) return true;
  } while (true);
}

}  // namespace cube::cache
