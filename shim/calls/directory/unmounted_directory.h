// An open directory of a pack or a bucket. This process answers calls on the directory from the
// listing. The fd refers to an empty directory that no path leads to. So a call that bypasses this
// library never sees entries of another directory. Such a call fails with ENOENT, or with the error
// that it gives on any directory (EISDIR, EBADF). The row of the fd holds an OpenFile, whose offset
// is the position. For streams over directories of mounts, mount_stream.h also uses serve() and the
// functions that follow is_below(). Thread-safe and async-signal-safe. The result of next_entry is
// valid until the stream is closed.
#pragma once

#include <dirent.h>

#include "cache/metadata/metadata.h"
#include "shim/fd/fd_table.h"
#include "shim/path/path_filter.h"

namespace cube::shim::unmounted_directory {

// Returns an fd, or -errno. `flags` are those of open(2). Takes ownership of the listing. For the
// kind mount_stream, the fd is never 0, 1 or 2.
int serve(cache::Listing* listing, RowKind kind, int flags);
// Opens the directory `key` of a pack or bucket, like serve() with the listing from Metadata::list.
// Returns the error of Metadata::list if that fails.
int open(const cache::Metadata& metadata, std::string_view key, int flags);

// Returns an empty reference if the fd is not an open directory of a pack or bucket.
[[gnu::always_inline]] inline OpenFileRef acquire(int fd) {
  return g_fds.kind(fd) == RowKind::unmounted_directory
             ? g_fds.acquire_kind(fd, RowKind::unmounted_directory)
             : OpenFileRef();
}
inline bool is_one(int fd) {
  return g_fds.kind(fd) == RowKind::unmounted_directory && process::owns_table();
}

// True if `dir` is an open directory of a pack or bucket and `path` lies below it. The kernel does
// not know such a path.
inline bool is_below(int dir, const char* path) {
  return is_one(dir) && path_filter::is_readable_pointer(path) && *path != '/' && *path != '\0';
}

// Like getdents64: returns a count of bytes, 0 at the end, or -EINVAL if no entry fits.
long get_entries(OpenFile& file, void* to, std::size_t n);
// Returns null at the end. Returns null and sets errno if the fd was opened with O_PATH.
struct ::dirent* next_entry(OpenFile& file);
// Returns the new position, or -EINVAL.
long seek(OpenFile& file, std::int64_t offset, int whence);

}  // namespace cube::shim::unmounted_directory
