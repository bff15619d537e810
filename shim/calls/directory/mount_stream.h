// A stream (DIR*) over a directory of a mount whose listing is in memory. At first, the fd of the
// stream refers to an empty directory that no path leads to. When the program asks for the fd
// (dirfd), the origin's own directory replaces the empty directory, at the same position. The row
// of the fd holds an OpenFile, whose offset is the position. A stream is as thread-safe as libc's
// streams are. The functions are async-signal-safe; a stream itself is not.
#pragma once

#include <dirent.h>

#include <climits>

#include "shim/fd/fd_table.h"

namespace cube::shim::mount_stream {

// True if listings of mounts may be cached. Checks only the state of this process.
bool may_have_any();
// Returns an fd for the stream, or -errno, or k_kernels. `path` is relative to `dir`. Sets
// `is_kernels` if the fd refers to the origin's own directory.
inline constexpr int k_kernels = INT_MIN;  // the kernel must open the directory
int open(int dir, const char* path, bool& is_kernels);

// Returns an empty reference if the fd does not belong to such a stream.
inline OpenFileRef acquire(int fd) {
  return g_fds.kind(fd) == RowKind::mount_stream ? g_fds.acquire_kind(fd, RowKind::mount_stream)
                                                 : OpenFileRef();
}
// Like telldir.
long tell(OpenFile& file);
// Like seekdir. Returns false if `place` is not a position in the listing.
bool seek(OpenFile& file, long place);
// Replaces the empty directory under the fd by the origin's own directory. Returns 0 or -errno.
// After an error, the fd still refers to the empty directory. -ENOENT means that the path no longer
// leads to the directory that was opened.
int materialize_directory(int fd);
// Call this before a directory or a link is moved or removed. Puts the origin's own directories
// under the fds of all streams, because a path may lead elsewhere by the time the program asks for
// the fd. The streams still read from memory.
void hold_all();

}  // namespace cube::shim::mount_stream
