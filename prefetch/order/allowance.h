// The account of a source that may have no more than so many bytes fetched: what a file is likely
// to have is promised when it is planned, and when its fetch has ended, what it has cost takes the
// promise's place. A request to the origin that was in vain costs as much as was promised, so that
// requests are bounded, too. Thread safety: promise() and take_spent() by the source's thread,
// settle() by any, once for each promise.
#pragma once

#include <atomic>
#include <cstdint>

namespace cube::prefetch {

class Allowance {
 public:
  void promise(std::uint64_t bytes) { promised_.fetch_add(bytes, std::memory_order_relaxed); }
  void settle(std::uint64_t promised, std::uint64_t bytes, bool was_asked) {
    spent_.fetch_add(was_asked && bytes == 0 ? promised : bytes, std::memory_order_relaxed);
    // Release: who sees that it is not promised any more sees what was spent; pairs with the
    // acquire in promised().
    promised_.fetch_sub(promised, std::memory_order_release);
  }
  std::uint64_t promised() const { return promised_.load(std::memory_order_acquire); }
  // Since it was taken last, but for less than `unit`.
  std::uint64_t take_spent(std::uint64_t unit) {
    const std::uint64_t units = spent_.load(std::memory_order_relaxed) / unit;
    spent_.fetch_sub(units * unit, std::memory_order_relaxed);
    return units;
  }

 private:
  std::atomic<std::uint64_t> promised_{0}, spent_{0};
};

}  // namespace cube::prefetch
