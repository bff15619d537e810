// An open as hooks of several topics make it. For the files of this folder alone. Thread safety: as libc's.
#pragma once

#include "shim/calls/names.h"
#include "shim/calls/new_fds.h"
#include "shim/calls/open_plan.h"
#include "shim/cancellation.h"
#include "shim/spelling.h"

namespace cube::shim {

// The plan holds a path of 4 KiB, which an open that passes by must not pay for: not in time, and not on a small stack.
template <typename Open>
__attribute__((noinline)) int planned(int dir, const char* path, int flags, Open&& open) {
  cancellation_point();
  OpenPlan plan(dir, path, flags);
  const int fd = plan.is_answered() ? plan.result() : plan.note(open());
  return names::with_error(fd, dir, path, (flags & O_NOFOLLOW) != 0);
}

template <typename Open>
inline int open_by(int dir, const char* path, int flags, Open&& open) {
  constexpr int k_interesting = O_ACCMODE | O_CREAT | O_TRUNC | O_DIRECTORY;
  if (!process::is_active()) return open();
  if ((flags & k_interesting) == O_RDONLY && path_filter::passes_by(path)) {
    expect_new_fd();
    const int fd = noted(open());
    spelling::opened_outside(fd, path);
    return fd;
  }
  return planned(dir, path, flags, open);
}

}  // namespace cube::shim
