// Counts the library's own copies or mappings of a file that the program has open, because a lock
// of the program lasts as long as such copies and mappings exist. Memory order (seq_cst): a user
// increments the count before it checks for locks and closed fds. A thread that locks the file or
// closes an fd notes this before it loads the count. Thread-safe within one process;
// async-signal-safe.
#pragma once

#include <atomic>
#include <cstdint>

namespace cube::cache {

class Uses {
 public:
  void begin() { count_.fetch_add(1, std::memory_order_seq_cst); }
  void end();
  bool is_any() const { return count_.load(std::memory_order_relaxed) != 0; }
  // Waits until the count is 0, but at most a second, because a user may hang in a call to the
  // origin.
  void wait_for_none();
  // Call it in a forked child, which has no such users.
  void forget() { count_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint32_t> count_{0}, waiters_{0};
};

}  // namespace cube::cache
