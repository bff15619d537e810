// Decides whether a request is sent to the servers. If almost no request is a hit, only one in 16
// is sent. After a hit, all requests are sent again for a while. Thread-safe. The counts may be
// slightly wrong.
#pragma once

#include <atomic>
#include <cstdint>

namespace cube::cache {

class ColdPool {
 public:
  bool is_to_ask() {
    return !is_cold_.load(std::memory_order_relaxed) ||
           skips_.fetch_add(1, std::memory_order_relaxed) % k_one_in == 0;
  }
  void note(bool is_hit);

 private:
  static constexpr std::uint32_t k_looks = 256, k_least_hits = 13, k_one_in = 16,
                                 k_trial = 32;  // 5 %
  std::atomic<std::uint32_t> looks_{0}, hits_{0}, skips_{0}, needed_{k_trial};
  std::atomic<bool> is_cold_{false};
};

}  // namespace cube::cache
