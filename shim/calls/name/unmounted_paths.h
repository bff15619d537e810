// Paths that no mount has, such as those in a pack. This process answers for them itself
// (cache/metadata); other files call them "our paths". A path that lies elsewhere, or that does not
// exist below such a prefix, is left to the kernel. path_calls.h answers for paths of mounts.
// Thread-safe and async-signal-safe.
#pragma once

#include <sys/statvfs.h>
#include <sys/vfs.h>

#include <cerrno>
#include <climits>
#include <optional>

#include "cache/metadata/all_metadata.h"
#include "shim/path/path_filter.h"
#include "shim/process/process.h"

namespace cube::shim::unmounted_paths {

// Returns null if the kernel must answer for the path; otherwise sets `covered`.
const cache::Metadata* of_slow(int dir, const char* path, CoveredPath& covered);
[[gnu::always_inline]] inline const cache::Metadata* of(int dir, const char* path,
                                                        CoveredPath& covered) {
  return process::origin_metadata() == nullptr ? nullptr : of_slow(dir, path, covered);
}
// True if the path itself asks for a directory: it ends in a slash or a dot.
bool asks_for_directory(std::string_view path);

bool stat(int dir, const char* path, bool no_follow, cache::FileStat& stat);
// access(2): returns 0 or -errno. Returns nothing if the path is not ours, or if `mode` is invalid.
std::optional<long> access(int dir, const char* path, int mode, bool no_follow = false);
std::optional<long> readlink(int dir, const char* path, char* to, std::size_t n);
bool realpath(const char* path, char (&to)[PATH_MAX]);
// Reports a read-only file system. If `path` is null, `dir` is the fd of a served directory.
bool statfs(int dir, const char* path, struct ::statfs& s);
bool statvfs(int dir, const char* path, struct ::statvfs& s);

// True for a relative path below a served directory. The caller must then return ENOENT itself,
// because for the kernel that fd is another directory.
bool is_below_served(int dir, const char* path);
// Returns the error for a path that neither the kernel nor we have: ENOENT, or the more precise
// error of the pack (ENOTDIR, ELOOP).
int error_of(int dir, const char* path, bool no_follow);
// Returns the kernel's result, with that error if the kernel returned ENOENT.
template <typename Result>
[[gnu::always_inline]] inline Result with_error(Result result, int dir, const char* path,
                                                bool no_follow) {
  if (result == -1 && process::origin_metadata() != nullptr && errno == ENOENT) [[unlikely]]
    errno = error_of(dir, path, no_follow);
  return result;
}

// For mkdir and the like: returns EEXIST or EROFS, or 0 for the kernel's paths.
int error_of_new(int dir, const char* path);
// True for one of our paths, even if no such file exists. Nothing there can be changed: EROFS.
bool is_read_only(int dir, const char* path);
// Like is_read_only by path, but for an open file or directory. False if a copy has replaced such a
// file.
bool is_read_only(int fd);

// Warns once that a served directory cannot be the working directory.
void tell_of_working_directory(int dir, const char* path);
// Copies the absolute path of an open served directory.
bool copy_path_of_directory(int fd, char (&path)[PATH_MAX]);

}  // namespace cube::shim::unmounted_paths
