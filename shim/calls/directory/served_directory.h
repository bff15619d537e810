// An open directory of our own names (names.h), as the program has it: a number of the kernel's,
// which is an empty directory that no name leads to, and what ours knows of it. So every call that
// passes us by gets an answer that is true of some directory (EISDIR, EBADF) or ENOENT, and never
// the names of another. The row of the number holds an OpenFile, whose offset is the position.
// Thread safety: all of it; all but next_entry's result, which is good until the stream is closed,
// is async-signal-safe.
#pragma once

#include "cache/metadata/metadata.h"
#include "shim/fd/fd_table.h"
#include "shim/path/path_filter.h"

namespace cube::shim::served_directory {

// An fd, or -errno: as Names::list. `flags` as of open(2).
int open(const cache::Metadata& metadata, std::string_view key, int flags);

// Empty for everything else.
inline OpenFileRef acquire(int fd) {
  return g_fds.kind(fd) == RowKind::served_directory
             ? g_fds.acquire_kind(fd, RowKind::served_directory)
             : OpenFileRef();
}
inline bool is_one(int fd) {
  return g_fds.kind(fd) == RowKind::served_directory && process::owns_table();
}

// A path that is looked for below such a directory: the kernel knows of nothing there.
inline bool is_below(int dir, const char* path) {
  return is_one(dir) && path_filter::is_readable_pointer(path) && *path != '/' && *path != '\0';
}

// getdents64: bytes, 0 at the end, -EINVAL where no entry fits.
long get_entries(OpenFile& file, void* to, std::size_t n);
// Null: the end, or (and errno is set) an fd for a path only.
struct ::dirent* next_entry(OpenFile& file);
// A new position, or -EINVAL.
long seek(OpenFile& file, std::int64_t offset, int whence);

}  // namespace cube::shim::served_directory
