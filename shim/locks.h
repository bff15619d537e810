// Locks on served files (flock, lockf, fcntl). The kernel keeps them on the origin's own file, which takes the placeholder's
// place; bytes are still answered from memory, so that a reader who locks reads the origin once.
// A lock that was waited for may have been another's exclusive lock: after each lock the file is looked at, and is the kernel's
// from then on if it has changed.
// Thread safety: all of it; async-signal-safe.
#pragma once

#include <fcntl.h>

#include "shim/calls/c_result.h"
#include "shim/materialize.h"

namespace cube::shim::locks {

inline bool is_lock(int command) {
  switch (command) {
    case F_GETLK:
    case F_SETLK:
    case F_SETLKW:
    case F_OFD_GETLK:
    case F_OFD_SETLK:
    case F_OFD_SETLKW: return true;
    default: return false;
  }
}

// The result of libc's call on an fd that the kernel can lock.
template <typename Call>
int made(int fd, Call&& call) {
  placeholder::unpark_if(fd);
  if (g_fds.kind(fd) == RowKind::none) return call();
  show_origin(fd);
  const int result = call();
  if (result == 0) {
    const KeepErrno keep;
    materialize_if_changed(fd);
  }
  return result;
}

}  // namespace cube::shim::locks
