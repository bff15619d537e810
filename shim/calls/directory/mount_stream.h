// A stream (DIR*) over a directory of a mount whose listing is in memory. Its fd refers to an empty
// directory that no path leads to. The program does not know that fd. As soon as it asks for the fd
// (dirfd), the origin's own directory replaces the empty one, at the same position. The row of the
// fd holds an OpenFile, whose offset is the position. Thread safety: as libc's for streams.
// Async-signal-safe, except for the stream itself.
#pragma once

#include <dirent.h>

#include <climits>

#include "shim/fd/fd_table.h"

namespace cube::shim::mount_stream {

// True if listings of mounts may be cached. Checks only the state of this process.
bool may_have_any();
// Returns an fd for the stream, or -errno. `path` is relative to `dir`. Sets `is_kernels` if the fd
// is the origin's own directory.
inline constexpr int k_kernels = INT_MIN;  // the kernel must open it
int open(int dir, const char* path, bool& is_kernels);

// Empty for all other fds.
inline OpenFileRef acquire(int fd) {
  return g_fds.kind(fd) == RowKind::mount_stream ? g_fds.acquire_kind(fd, RowKind::mount_stream)
                                                 : OpenFileRef();
}
// Like telldir.
long tell(OpenFile& file);
// Like seekdir. Returns false if there is no such place.
bool seek(OpenFile& file, long place);
// Replaces the placeholder of the fd by the origin's own directory. Returns 0, or -errno, in which
// case the fd remains an empty directory. -ENOENT: the path now leads to another directory, or to
// none.
int materialize_directory(int fd);
// Call it before a directory or a link is moved or removed. Replaces the fds of all streams by the
// origin's own directories, because the paths may lead elsewhere by the time the program asks for
// the fds. The streams are still read from memory.
void hold_all();

}  // namespace cube::shim::mount_stream
