// Recognizes paths that name an fd of the program, such as /proc/self/fd/N and /dev/fd/N.
// Thread-safe and async-signal-safe.
#pragma once

#include <fcntl.h>

#include "shim/path/path_filter.h"

namespace cube::shim {

// Returns N for "/proc/self/fd/N" and similar paths (0 for "/dev/stdin"), and -1 for all others.
// Closes parked fds if the path names or lists fds.
int named_fd(const char* path);
// Returns N for "N", and -1 for other paths.
int bare_fd(const char* path);

// Materializes the fd that a path such as /proc/self/fd/N names, because the kernel will follow the
// path.
[[gnu::noinline, gnu::cold]] void materialize_named_slow(const char* path, int dir);
inline void materialize_named(const char* path, int dir = AT_FDCWD) {
  if (!path_filter::is_readable_pointer(path)) return;
  // Only a path that begins with "/p", "/d", "//", "/." or a digit can name an fd.
  const bool may_name = path[0] == '/'
                            ? path[1] == 'p' || path[1] == 'd' || path[1] == '/' || path[1] == '.'
                            : path[0] >= '0' && path[0] <= '9';
  if (may_name) materialize_named_slow(path, dir);
}

}  // namespace cube::shim
