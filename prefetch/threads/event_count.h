// An EventCount lets threads wait for a condition that other threads make true. It needs no lock
// and loses no wake-up:
//   waiter:  for (auto seen = events.now(); !condition(); seen = events.now()) events.wait(seen);
//   other:   make it true, then events.notify();
// Thread-safe. A notify() without waiters costs one addition and one load.
#pragma once

#include <atomic>
#include <cstdint>

#include "cache/base/clock.h"
#include "cache/base/sys.h"

namespace cube::prefetch {

class EventCount {
 public:
  // Call before the condition is checked.
  std::uint32_t now() const { return count_.load(std::memory_order_seq_cst); }
  // Waits for a notify() later than `seen`, but no longer than `at_most_ns`.
  void wait(std::uint32_t seen, std::uint64_t at_most_ns = UINT64_MAX) {
    // Both sides add first and load afterwards, so either notify() sees this waiter, or the kernel
    // sees the new count.
    waiters_.fetch_add(1, std::memory_order_seq_cst);
    base::sys::futex_wait(&count_, seen, at_most_ns);
    waiters_.fetch_sub(1, std::memory_order_relaxed);
  }
  // Waits until the condition is true, but no longer than `at_most_ns`. Returns whether it is true.
  template <typename Condition>
  bool wait_until(Condition is_true, std::uint64_t at_most_ns = UINT64_MAX) {
    const std::uint64_t began = base::monotonic_ns();
    for (;;) {
      const std::uint32_t seen = now();
      if (is_true()) return true;
      const std::uint64_t took = base::monotonic_ns() - began;
      if (took >= at_most_ns) return false;
      wait(seen, at_most_ns == UINT64_MAX ? UINT64_MAX : at_most_ns - took);
    }
  }
  void notify() {
    count_.fetch_add(1, std::memory_order_seq_cst);
    if (waiters_.load(std::memory_order_seq_cst) != 0) base::sys::futex_wake_all(&count_);
  }

 private:
  std::atomic<std::uint32_t> count_{0}, waiters_{0};
};

}  // namespace cube::prefetch
