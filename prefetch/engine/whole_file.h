// The steps of one fetch by plain system calls, and the parts of them that both engines share.
// Thread safety: pure functions apart from the system calls. The calling thread must have its own
// fd table.
#pragma once

#include <climits>
#include <cstring>

#include "cache/origin/links_on_way.h"
#include "prefetch/engine/io_engine.h"

namespace cube::prefetch {

// O_NONBLOCK: if the file is a FIFO after all, the open does not wait for it.
inline constexpr int k_open_flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;

// Copies the path, because the client's copy may be freed during the system call. A path that is
// too long is cut to one that the kernel also refuses as too long.
inline void keep_path(char (&to)[PATH_MAX + 1], const char* path) {
  const std::size_t n = ::strnlen(path, PATH_MAX);
  std::memcpy(to, path, n);
  to[n] = '\0';
}

// A file is opened in two steps. The first step opens only the path (O_PATH), which costs the
// origin a lookup and no open. If that is a regular file, the second opens it through the first fd.
// Other files are not opened: opening a FIFO would release a waiting writer, and opening a tape
// would rewind it.
inline constexpr int k_name_flags = O_PATH | O_CLOEXEC;
// DONT_SYNC: an outdated stat suffices, because a file does not change its kind.
inline constexpr int k_name_stat_flags = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;

// Performs both steps. Tries to open without symbolic links first, so that is_physical costs
// nothing. `named`: the stat of the path. If the file is not regular, or larger than `most`, the
// returned fd is the O_PATH one.
base::Result<int> open_for_fetch(const char* path, cache::LinksOnWay& links, cache::FileStat& named,
                                 std::uint64_t most = UINT64_MAX);

}  // namespace cube::prefetch
