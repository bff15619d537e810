// The parts of a fetch that both engines share, and the open by plain system calls. Thread safety:
// pure functions apart from the system calls. The calling thread must have its own fd table.
#pragma once

#include <climits>
#include <cstring>

#include "cache/origin/links_on_way.h"
#include "prefetch/engine/io_engine.h"

namespace cube::prefetch {

// O_NONBLOCK: if the file is a FIFO after all, the open does not wait for it.
inline constexpr int k_open_flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;

// Copies the path, because the client's copy may be freed during the system call. A path that is
// too long is cut, but stays too long for the kernel, which refuses it.
inline void keep_path(char (&to)[PATH_MAX + 1], const char* path) {
  const std::size_t n = ::strnlen(path, PATH_MAX);
  std::memcpy(to, path, n);
  to[n] = '\0';
}

// A file is opened in two steps. The first step opens only the path (O_PATH), which costs the
// origin a lookup and no open. If the path is a regular file, the second step opens the file
// through the first fd. Other files are not opened: opening a FIFO would release a waiting writer,
// and opening a tape device would rewind the tape.
inline constexpr int k_name_flags = O_PATH | O_CLOEXEC;
// DONT_SYNC: an outdated stat suffices, because a file does not change its kind.
inline constexpr int k_name_stat_flags = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;

// Performs both steps. First tries to open the path without symbolic links, which tells at no cost
// whether the path has any. `named` receives the stat of the path. If the file is not regular, or
// is larger than `most`, the returned fd is the O_PATH fd.
base::Result<int> open_for_fetch(const char* path, cache::LinksOnWay& links, cache::FileStat& named,
                                 std::uint64_t most = UINT64_MAX);

}  // namespace cube::prefetch
