// Paths of packs and buckets, which no mount has. Other files call them "our paths". This process
// answers calls with such a path (cache/metadata). The kernel answers for all other paths, even
// below the prefix of a pack or bucket. For paths of mounts, see path_calls.h. Thread-safe and
// async-signal-safe.
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

// Returns the metadata that has the path, and sets `covered`. Returns null if the kernel must
// answer.
const cache::Metadata* of_slow(int dir, const char* path, CoveredPath& covered);
[[gnu::always_inline]] inline const cache::Metadata* of(int dir, const char* path,
                                                        CoveredPath& covered) {
  return process::origin_metadata() == nullptr ? nullptr : of_slow(dir, path, covered);
}
// True if the path can only name a directory, because it ends in a slash or a dot.
bool asks_for_directory(std::string_view path);

bool stat(int dir, const char* path, bool no_follow, cache::FileStat& stat);
// Like access(2): returns 0 or -errno. Returns nothing if this is not one of our paths, or if
// `mode` is invalid.
std::optional<long> access(int dir, const char* path, int mode, bool no_follow = false);
std::optional<long> readlink(int dir, const char* path, char* to, std::size_t n);
bool realpath(const char* path, char (&to)[PATH_MAX]);
// Reports a read-only file system. If `path` is null, `dir` is the fd of a served directory.
bool statfs(int dir, const char* path, struct ::statfs& s);
bool statvfs(int dir, const char* path, struct ::statvfs& s);

// True for a relative path below a served directory. The caller must then return ENOENT without
// asking the kernel, because in the kernel `dir` refers to another directory.
bool is_below_served(int dir, const char* path);
// Returns the error for a path that exists neither in the kernel nor among our paths: ENOENT, or
// the more precise error of the pack (ENOTDIR, ELOOP).
int error_of(int dir, const char* path, bool no_follow);
// Returns the kernel's `result`. If the kernel's error is ENOENT, sets errno to error_of().
template <typename Result>
[[gnu::always_inline]] inline Result with_error(Result result, int dir, const char* path,
                                                bool no_follow) {
  if (result == -1 && process::origin_metadata() != nullptr && errno == ENOENT) [[unlikely]]
    errno = error_of(dir, path, no_follow);
  return result;
}

// For mkdir and similar calls: returns EEXIST or EROFS for one of our paths, and 0 for all others.
int error_of_new(int dir, const char* path);
// True if the path lies among our paths, even if no such file exists. No such path can be changed
// (EROFS).
bool is_read_only(int dir, const char* path);
// Like is_read_only by path, but for an open file or directory. False if a copy has replaced the
// file.
bool is_read_only(int fd);

// Warns once that a served directory cannot be the working directory.
void tell_of_working_directory(int dir, const char* path);
// Copies the absolute path of an open served directory.
bool copy_path_of_directory(int fd, char (&path)[PATH_MAX]);

}  // namespace cube::shim::unmounted_paths
