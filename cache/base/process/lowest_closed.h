// Tracks the lowest fd that this thread closes while the object lives. This fd may be free now. If
// other code has looked for the lowest free fd before, the closed fd may be lower. Fds that a
// signal handler on this thread closes count, too. Thread safety and async-signal safety: each
// thread has its own state.
#pragma once

#include <algorithm>
#include <climits>
#include <utility>

namespace cube::base {

inline constinit thread_local int t_lowest_closed [[gnu::tls_model("initial-exec")]] = INT_MAX;

inline void note_closed(int fd) {
  if (fd >= 0) t_lowest_closed = std::min(t_lowest_closed, fd);
}

class LowestClosed {
 public:
  LowestClosed() : before_(std::exchange(t_lowest_closed, INT_MAX)) {}
  ~LowestClosed() { t_lowest_closed = std::min(t_lowest_closed, before_); }
  LowestClosed(const LowestClosed&) = delete;
  LowestClosed& operator=(const LowestClosed&) = delete;
  // The lowest fd. -1: the thread has closed no fd.
  int fd() const { return t_lowest_closed == INT_MAX ? -1 : t_lowest_closed; }

 private:
  int before_;
};

}  // namespace cube::base
