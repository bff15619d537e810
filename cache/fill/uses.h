// A count of our copies of the program's open file, for a lock of that file lasts as long as they
// do. seq_cst: a user counts first and looks at the locks or the numbers then; a thread that locks
// or closes does it the other way round. Thread safety: all of it, of one process;
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
  // A second at most: a user may hang in the origin.
  void wait_for_none();
  // In a forked child, which has none of them.
  void forget() { count_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint32_t> count_{0}, waiters_{0};
};

}  // namespace cube::cache
