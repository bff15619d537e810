// An open directory of a pack or a bucket: an fd of an empty directory that no path leads to, and
// the listing, from which this process answers. So a call that bypasses us gets ENOENT, or an error
// as from any directory (EISDIR, EBADF), but never the entries of another directory. The row of the
// fd holds an OpenFile, whose offset is the position. mount_stream.h also uses serve() and the
// functions after is_below(), for streams over directories of mounts. Thread-safe and
// async-signal-safe, except that next_entry's result is valid only until the stream is closed.
#pragma once

#include <dirent.h>

#include "cache/metadata/metadata.h"
#include "shim/fd/fd_table.h"
#include "shim/path/path_filter.h"

namespace cube::shim::unmounted_directory {

// Returns an fd, or -errno. `flags` are those of open(2). Takes ownership of the listing. For the
// kind mount_stream, the fd is never 0, 1 or 2.
int serve(cache::Listing* listing, RowKind kind, int flags);
// Like serve() with the listing of one of our paths. The -errno may be that of Metadata::list.
int open(const cache::Metadata& metadata, std::string_view key, int flags);

// Empty unless the fd is one of our paths.
[[gnu::always_inline]] inline OpenFileRef acquire(int fd) {
  return g_fds.kind(fd) == RowKind::unmounted_directory
             ? g_fds.acquire_kind(fd, RowKind::unmounted_directory)
             : OpenFileRef();
}
inline bool is_one(int fd) {
  return g_fds.kind(fd) == RowKind::unmounted_directory && process::owns_table();
}

// True for a path below such a directory, which the kernel does not know.
inline bool is_below(int dir, const char* path) {
  return is_one(dir) && path_filter::is_readable_pointer(path) && *path != '/' && *path != '\0';
}

// getdents64: returns bytes, 0 at the end, -EINVAL if no entry fits.
long get_entries(OpenFile& file, void* to, std::size_t n);
// Returns null at the end, or with errno set if the fd was opened with O_PATH.
struct ::dirent* next_entry(OpenFile& file);
// Returns the new position, or -EINVAL.
long seek(OpenFile& file, std::int64_t offset, int whence);

}  // namespace cube::shim::unmounted_directory
