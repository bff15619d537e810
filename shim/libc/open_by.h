// The common part of all hooks that open a file. Only for files in this folder. Thread safety: as
// libc's.
#pragma once

#include "shim/calls/name/unmounted_paths.h"
#include "shim/calls/new_fds.h"
#include "shim/calls/open/open_plan.h"
#include "shim/libc/profiled.h"
#include "shim/path/spelling.h"
#include "shim/process/cancellation.h"

namespace cube::shim {

// Not inlined, because the plan holds a path of 4 KiB, which would cost time and stack in opens
// outside the prefixes.
template <typename Open>
__attribute__((noinline)) int planned(int dir, const char* path, int flags, Open&& open) {
  OpenPlan plan(dir, path, flags);
  const int fd = plan.is_answered() ? plan.result() : plan.note(by_kernel(open()));
  return unmounted_paths::with_error(fd, dir, path, (flags & O_NOFOLLOW) != 0);
}

// The caller's address is not a parameter, to save an argument on the path of a hit.
template <typename Plain>
__attribute__((noinline)) int watched_open(int dir, const char* path, int flags, Plain&& plain) {
  return profiled(
      {.kind = profile::Kind::open, .caller = nullptr, .fd = dir, .path = path, .flags = flags},
      plain);
}

// An open that the shim leaves to libc.
template <typename Open>
inline int open_of_libc(int dir, const char* path, int flags, Open&& open) {
  if (!profile::is_on()) [[likely]]
    return open();
  return watched_open(dir, path, flags, [&] { return by_kernel(open()); });
}

template <typename Open>
inline int open_by(int dir, const char* path, int flags, Open&& open) {
  constexpr int k_interesting = O_ACCMODE | O_CREAT | O_TRUNC | O_DIRECTORY;
  if (!process::is_active()) {
    const bool is_told = process::tells() && (flags & (O_ACCMODE | O_CREAT | O_TRUNC)) != O_RDONLY;
    return is_told ? planned(dir, path, flags, open) : open_of_libc(dir, path, flags, open);
  }
  if ((flags & k_interesting) == O_RDONLY && path_filter::passes_by(path)) {
    expect_new_fd();
    const int fd = noted(open_of_libc(dir, path, flags, open));
    spelling::opened_outside(fd, path);
    return fd;
  }
  if (cancel_or_profile()) [[unlikely]]
    return watched_open(dir, path, flags, [&] { return planned(dir, path, flags, open); });
  return planned(dir, path, flags, open);
}

}  // namespace cube::shim
