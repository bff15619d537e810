// A stream (DIR*) over a directory of a mount whose listing is in memory. Its number is an empty
// directory that no name leads to, which the program does not know: as soon as it asks for it
// (dirfd), the number becomes the origin's own directory, at the same place. The row of the number
// holds an OpenFile, whose offset is the position. Thread safety: as libc's for streams.
// Async-signal-safe, but for the stream itself.
#pragma once

#include <dirent.h>

#include <climits>

#include "shim/fd/fd_table.h"

namespace cube::shim::listed_directory {

// May memory have listings of a mount at all? Looks at the process alone.
bool may_have_any();
// A number for the stream, or -errno. `path` is relative to `dir`. `is_kernels`: the number is the
// origin's own directory.
inline constexpr int k_kernels = INT_MIN;  // the kernel is to open it
int open(int dir, const char* path, bool& is_kernels);

// Empty for everything else.
inline OpenFileRef acquire(int fd) {
  const RowKind kind = g_fds.kind(fd);
  // hold_all() may be at it.
  const bool may_be = kind == RowKind::listed_directory || kind == RowKind::busy;
  return may_be ? g_fds.acquire_kind(fd, RowKind::listed_directory) : OpenFileRef();
}
// As readdir. Null: the end.
struct ::dirent* next_entry(OpenFile& file);
// As telldir.
long tell(OpenFile& file);
// As seekdir; false: there is no such place.
bool seek(OpenFile& file, long place);
// Puts the origin's own directory under the number. 0, or -errno: the number stays empty. -ENOENT:
// it is another directory by now, or none.
int become_real(int fd);
// Before a directory or a link is moved or removed: the origin's own directories come under the
// numbers of all streams, which are read from memory as before. A path may not lead there any more
// when the program asks for the number.
void hold_all();

}  // namespace cube::shim::listed_directory
