// Names that this process answers itself, for the kernel does not have them (cache/metadata). A
// path that lies elsewhere, or that such a prefix does not have, is left to the kernel. Thread
// safety: all of it; async-signal-safe.
#pragma once

#include <sys/statvfs.h>
#include <sys/vfs.h>

#include <cerrno>
#include <climits>
#include <optional>

#include "cache/metadata/all_metadata.h"
#include "shim/path/path_filter.h"
#include "shim/process/process.h"

namespace cube::shim::metadata {

// Null: the path is the kernel's. `covered` is set if it is not.
const cache::Metadata* of_slow(int dir, const char* path, CoveredPath& covered);
[[gnu::always_inline]] inline const cache::Metadata* of(int dir, const char* path,
                                                        CoveredPath& covered) {
  return process::origin_metadata() == nullptr ? nullptr : of_slow(dir, path, covered);
}
// The path itself asks for a directory: it ends in a slash or a dot.
bool asks_for_directory(std::string_view path);

bool stat(int dir, const char* path, bool no_follow, cache::FileStat& stat);
// access(2): 0 or -errno. Nothing for F_OK and R_OK of a file that is cached.
std::optional<long> access(int dir, const char* path, int mode, bool no_follow = false);
std::optional<long> readlink(int dir, const char* path, char* to, std::size_t n);
bool realpath(const char* path, char (&to)[PATH_MAX]);
// A read-only file system. By path, or by the fd of a served directory where `path` is null.
bool statfs(int dir, const char* path, struct ::statfs& s);
bool statvfs(int dir, const char* path, struct ::statvfs& s);

// Is it a relative path below a served directory? Then ENOENT is ours to say: the kernel knows
// another directory by that number.
bool is_below_served(int dir, const char* path);
// The error of a path that neither the kernel has nor we: ENOENT, or what we know better (ENOTDIR,
// ELOOP).
int error_of(int dir, const char* path, bool no_follow);
// The kernel's result, with that error if the kernel has said ENOENT.
template <typename Result>
[[gnu::always_inline]] inline Result with_error(Result result, int dir, const char* path,
                                                bool no_follow) {
  if (result == -1 && process::origin_metadata() != nullptr && errno == ENOENT) [[unlikely]]
    errno = error_of(dir, path, no_follow);
  return result;
}

// For mkdir and its like: EEXIST or EROFS, 0 for the kernel's paths.
int error_of_new(int dir, const char* path);
// Is it a path of ours, whether there is such a file or not? Nothing there can be changed: EROFS.
bool is_read_only(int dir, const char* path);
// The same of an open file or directory. False for the copy that such a file may have become.
bool is_read_only(int fd);

// A served directory cannot be the working directory. Said once.
void tell_of_working_directory(int dir, const char* path);
// The absolute path of a served directory that is open.
bool copy_path_of_directory(int fd, char (&path)[PATH_MAX]);

}  // namespace cube::shim::metadata
