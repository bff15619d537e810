// Functions to call around a call that makes an unserved fd. Before such a call, the shim closes
// parked fds, because the new fd must be the lowest free fd. After the call, the shim clears the
// row of the new fd. Thread-safe and async-signal-safe.
#pragma once

#include "shim/fd/fd_table.h"
#include "shim/fd/placeholder.h"

namespace cube::shim {

inline void expect_new_fd() { placeholder::unpark(); }

inline int noted(int fd) {
  if (fd >= 0 && g_fds.kind(fd) != RowKind::none && process::owns_table()) [[unlikely]]
    g_fds.forget(fd);
  return fd;
}

// Notes a dup. The program can also write through the copy of a writer's fd, and the copy of a
// served directory's fd is served, too.
inline int noted_dup(int from, int fd, bool close_on_exec) {
  // dup2 of an fd to itself changes nothing.
  if (fd == from) return fd;
  noted(fd);
  const RowKind kind = g_fds.kind(from);
  const bool is_directory = kind == RowKind::directory;
  if (fd >= 0 && (is_of_kernel(kind) || is_directory) && g_fds.is_within(fd) &&
      process::owns_table()) [[unlikely]] {
    if (is_directory) {
      g_fds.set_directory(fd);
    } else if (OpenFileRef file = g_fds.acquire_kind(from, kind)) {
      g_fds.set(fd, kind, std::move(file), close_on_exec);
    }
  }
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
