// Lets the client's thread sleep, and wakes it. Thread safety: any thread may call wake() and
// note_news(). Only the sleeping thread may call the other functions.
#pragma once

#include <atomic>
#include <cstdint>

#include "cache/base/sys.h"

namespace cube::cache {

class Wakeup {
 public:
  void wake() {
    count_.fetch_add(1, std::memory_order_seq_cst);
    if (sleeps_.load(std::memory_order_seq_cst) != 0) base::sys::futex_wake_all(&count_);
  }
  // Wakes the thread only if it dozes: it then checks for new work only now and then.
  void note_news() {
    if (dozes_.load(std::memory_order_relaxed)) wake();
  }

  void set_dozes(bool dozes) { dozes_.store(dozes, std::memory_order_relaxed); }
  // The number of wake-ups so far. Read it before looking for work.
  std::uint32_t count() const { return count_.load(std::memory_order_seq_cst); }
  // Sleeps until the number of wake-ups differs from `seen`, but at most `at_most_ns`. Returns
  // whether the number differs.
  bool sleep(std::uint32_t seen, std::uint64_t at_most_ns) {
    sleeps_.store(1, std::memory_order_seq_cst);
    base::sys::futex_wait(&count_, seen, at_most_ns);
    sleeps_.store(0, std::memory_order_relaxed);
    dozes_.store(false, std::memory_order_relaxed);
    return count_.load(std::memory_order_relaxed) != seen;
  }

 private:
  // seq_cst, like sleeps_: either the sleeping thread sees the new count, or the waking thread sees
  // sleeps_.
  std::atomic<std::uint32_t> count_{0};  // futex
  std::atomic<std::uint32_t> sleeps_{0};
  std::atomic<bool> dozes_{false};
};

}  // namespace cube::cache
