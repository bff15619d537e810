// Counts the library's copies of an open file of the program, because a lock on that file lasts as
// long as these copies. Memory order, seq_cst: a user first increments the count, then checks for
// locks or closed fds. A thread that locks a file or closes an fd first notes this, then loads the
// count. Thread-safe within one process; async-signal-safe.
#pragma once

#include <atomic>
#include <cstdint>

namespace cube::cache {

class Uses {
 public:
  void begin() { count_.fetch_add(1, std::memory_order_seq_cst); }
  void end();
  bool is_any() const { return count_.load(std::memory_order_relaxed) != 0; }
  // Waits until there is no copy, but at most a second, because a user may hang in the origin.
  void wait_for_none();
  // Called in a forked child, which has no copies.
  void forget() { count_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint32_t> count_{0}, waiters_{0};
};

}  // namespace cube::cache
