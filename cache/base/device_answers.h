// The kernel's answers to one yes-or-no question about each device, so that the kernel is asked
// only once for each device. If the table is full, further devices are not stored, and the kernel
// is asked about them every time. Thread-safe and async-signal-safe; allocates nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace cube::base {

class DeviceAnswers {
 public:
  // Empty: the kernel has not been asked.
  std::optional<bool> find(std::uint64_t device) const {
    const std::uint64_t word = (device + 1) << 1;
    for (const auto& known : known_) {
      const std::uint64_t found = known.load(std::memory_order_relaxed);
      if ((found & ~1ULL) == word) return (found & 1) != 0;
    }
    return std::nullopt;
  }
  void note(std::uint64_t device, bool answer) {
    const std::uint64_t word = (device + 1) << 1 | (answer ? 1 : 0);
    for (auto& known : known_) {
      std::uint64_t none = 0;
      if (known.compare_exchange_strong(none, word, std::memory_order_relaxed)) return;
    }
  }
  bool has_any() const { return known_[0].load(std::memory_order_relaxed) != 0; }

 private:
  static constexpr std::size_t k_devices = 16;
  std::atomic<std::uint64_t> known_[k_devices] = {};  // (device + 1) << 1 | answer; 0: free
};

}  // namespace cube::base
