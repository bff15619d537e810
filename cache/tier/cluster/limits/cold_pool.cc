#include "cache/tier/cluster/limits/cold_pool.h"

namespace cube::cache {

void ColdPool::note(bool is_hit) {
  if (is_cold_.load(std::memory_order_relaxed)) {
    if (!is_hit) return;
    needed_.store(k_trial, std::memory_order_relaxed);
    is_cold_.store(false, std::memory_order_relaxed);
    return;
  }
  if (is_hit) hits_.fetch_add(1, std::memory_order_relaxed);
  const std::uint32_t needed = needed_.load(std::memory_order_relaxed);
  if (looks_.fetch_add(1, std::memory_order_relaxed) + 1 < needed) return;
  const std::uint32_t hits = hits_.exchange(0, std::memory_order_relaxed);
  looks_.store(0, std::memory_order_relaxed);
  needed_.store(k_looks, std::memory_order_relaxed);
  is_cold_.store(hits * k_looks < k_least_hits * needed, std::memory_order_relaxed);
}

}  // namespace cube::cache
