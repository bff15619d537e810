// Calls that make fds which are not served: what we knew of the number is void, and a parked number must not be in the
// way of the lowest free one. Thread safety: all of it; async-signal-safe.
#pragma once

#include "shim/fd_table.h"
#include "shim/placeholder.h"

namespace cube::shim {

inline void expect_new_fd() {
  if (placeholder::g_parked.load(std::memory_order_relaxed) >= 0 && process::owns_table()) placeholder::unpark_slow();
}

inline int noted(int fd) {
  if (fd >= 0 && g_fds.kind(fd) != RowKind::none && process::owns_table()) [[unlikely]]
    g_fds.forget(fd);
  return fd;
}

inline int noted_pair(int result, const int* fds) {
  if (result == 0) {
    noted(fds[0]);
    noted(fds[1]);
  }
  return result;
}

}  // namespace cube::shim
