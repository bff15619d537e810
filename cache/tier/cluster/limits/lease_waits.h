// Decides whether to wait for another node's fetch. If at least half of the last waits have
// succeeded, every caller waits. Otherwise only one caller in 8 waits. Thread-safe. The counts may
// be slightly wrong.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

namespace cube::cache {

class LeaseWaits {
 public:
  bool is_to_wait() {
    return std::popcount(outcomes_.load(std::memory_order_relaxed)) >= k_looks / 2 ||
           skips_.fetch_add(1, std::memory_order_relaxed) % k_one_in == 0;
  }
  void note(bool has_come) {
    const std::uint32_t before = outcomes_.load(std::memory_order_relaxed);
    outcomes_.store(before << 1 | (has_come ? 1 : 0), std::memory_order_relaxed);
  }

 private:
  static constexpr int k_looks = 32;
  static constexpr std::uint32_t k_one_in = 8;
  std::atomic<std::uint32_t> outcomes_{UINT32_MAX}, skips_{0};  // a bit for each recent outcome
};

}  // namespace cube::cache
