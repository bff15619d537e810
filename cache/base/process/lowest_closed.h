// Tracks the lowest fd that this thread closes while this lives. That fd may be free now, and lower
// than the fd that other code takes for the lowest free one. Fds that a handler on this thread
// closes count, too. Thread safety and async-signal safety: a thread's own.
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
  // -1: none.
  int fd() const { return t_lowest_closed == INT_MAX ? -1 : t_lowest_closed; }

 private:
  int before_;
};

}  // namespace cube::base
