// A condition variable for Mutex that uses only a futex. std::condition_variable would call pthread
// functions, which a preloaded library can interpose. Thread-safe.
#pragma once

#include <mutex>

#include "cache/base/clock.h"
#include "cache/base/mutex.h"

namespace cube::base {

class Condition {
 public:
  using Lock = std::unique_lock<Mutex>;

  // Waits for a notify, for at most `at_most_ns`. The wait can also end without a notify.
  void wait(Lock& lock, std::uint64_t at_most_ns = UINT64_MAX) {
    // Loads the count before unlocking the mutex. If a notify follows, it changes the count, and
    // the futex call returns immediately.
    const std::uint32_t seen = count_.load(std::memory_order_relaxed);
    lock.unlock();
    sys::futex_wait(&count_, seen, at_most_ns);
    lock.lock();
  }
  // Waits until is_true() returns true, but for at most `at_most_ns`. False: the time ran out.
  template <typename Predicate>
  bool wait_until(Lock& lock, Predicate is_true, std::uint64_t at_most_ns = UINT64_MAX) {
    const std::uint64_t now = monotonic_ns(),
                        until = at_most_ns > UINT64_MAX - now ? UINT64_MAX : now + at_most_ns;
    while (!is_true()) {
      const std::uint64_t time = monotonic_ns();
      if (time >= until) return false;
      wait(lock, until == UINT64_MAX ? until : until - time);
    }
    return true;
  }
  void notify() {
    count_.fetch_add(1, std::memory_order_relaxed);
    sys::futex_wake_all(&count_);
  }
  void notify_one() {
    count_.fetch_add(1, std::memory_order_relaxed);
    sys::futex_wake_one(&count_);
  }

 private:
  std::atomic<std::uint32_t> count_{0};
};

}  // namespace cube::base
