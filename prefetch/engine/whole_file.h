// The steps of one fetch by plain system calls, and what both engines need of them.
// Thread safety: pure functions but for the system calls. An fd table of the calling thread's own
// is assumed.
#pragma once

#include <climits>
#include <cstring>

#include "cache/origin/links_on_way.h"
#include "prefetch/engine/io_engine.h"

namespace cube::prefetch {

// O_NONBLOCK: should there be a FIFO nevertheless, it is not waited for.
inline constexpr int k_open_flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;

// The client's path may go while the kernel is asked. One that is too long stays so.
inline void keep_path(char (&to)[PATH_MAX + 1], const char* path) {
  const std::size_t n = ::strnlen(path, PATH_MAX);
  std::memcpy(to, path, n);
  to[n] = '\0';
}

// A file is opened in two steps: the name alone, which is a question of names to the origin and no
// open, then, through it, what is a regular file. Anything else is not to be opened: a FIFO would
// let a waiting writer through, a tape would rewind.
inline constexpr int k_name_flags = O_PATH | O_CLOEXEC;
inline constexpr int k_name_stat_flags =
    AT_EMPTY_PATH | AT_STATX_DONT_SYNC;  // a file does not change its kind

// Both steps. Opens without symbolic links first, so that is_physical costs nothing. The fd of
// anything but a regular file is of the name alone.
base::Result<int> open_for_fetch(const char* path, cache::LinksOnWay& links);

}  // namespace cube::prefetch
