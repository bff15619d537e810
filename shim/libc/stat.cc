// stat, access and their variants, by path and by fd.
#include "shim/calls/file_calls.h"
#include "shim/calls/name/kernel_answer.h"
#include "shim/calls/name/path_calls.h"
#include "shim/calls/name/unmounted_paths.h"
#include "shim/fd/materialize.h"
#include "shim/fd/placeholder.h"
#include "shim/libc/answers.h"
#include "shim/path/fd_path.h"
#include "shim/process/c_result.h"
#include "shim/process/user_pointer.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;
namespace calls = cube::shim::file_calls;
using cube::shim::to_c;

namespace {

// True for the versions of `struct stat` that __xstat and its variants accept. For other versions,
// libc returns EINVAL. On x86-64, two versions mean the same structure.
#if defined(__x86_64__)
bool is_known(int version) { return version == 0 || version == 1; }
#else
bool is_known(int version) { return version == 0; }
#endif

// Returns 0 or -errno. Returns nothing if the path is not in memory, or if `st` is a bad pointer
// and the kernel can answer for the path.
std::optional<long> known_stat(int dir, const char* path, bool no_follow, struct ::stat* st) {
  cube::cache::FileStat found;
  if (shim::is_bad_pointer(st, sizeof *st)) {
    return shim::unmounted_paths::stat(dir, path, no_follow, found) ? std::optional<long>(-EFAULT)
                                                                    : std::nullopt;
  }
  const shim::Known known = shim::stat_from_record(dir, path, shim::StatWish{no_follow}, found);
  if (known == shim::Known::unknown) return std::nullopt;
  if (known == shim::Known::absent) return -ENOENT;
  found.copy_to(*st);
  return 0;
}

// Returns `st` if it holds the kernel's unchanged answer, by which the cache may be corrected.
// Otherwise returns null.
const struct ::stat* kernels_stat(bool is_known_form, const struct ::stat* st) {
  return is_known_form && !real::stat_is_anothers() ? st : nullptr;
}

}  // namespace

#define CUBE_STAT(name, known, dir_of, path_of, no_follow, declaration, ...)                       \
  int export_##name declaration {                                                                  \
    CUBE_PLAIN(int, {                                                                              \
      if (known) {                                                                                 \
        if (const auto answer = known_stat(dir_of, path_of, no_follow, st))                        \
          return static_cast<int>(to_c(*answer));                                                  \
      }                                                                                            \
      return shim::told_stat(shim::by_kernel(real::name(__VA_ARGS__)), dir_of, path_of, no_follow, \
                             kernels_stat(known, st));                                             \
    });                                                                                            \
    CUBE_PROFILED(stat, .fd = dir_of, .path = path_of, .st = st);                                  \
  }
CUBE_STAT(stat, true, AT_FDCWD, path, false, (const char* path, struct ::stat* st), path, st)
CUBE_STAT(stat64, true, AT_FDCWD, path, false, (const char* path, struct ::stat* st), path, st)
CUBE_STAT(lstat, true, AT_FDCWD, path, true, (const char* path, struct ::stat* st), path, st)
CUBE_STAT(lstat64, true, AT_FDCWD, path, true, (const char* path, struct ::stat* st), path, st)
CUBE_STAT(__xstat, is_known(version), AT_FDCWD, path, false,
          (int version, const char* path, struct ::stat* st), version, path, st)
CUBE_STAT(__xstat64, is_known(version), AT_FDCWD, path, false,
          (int version, const char* path, struct ::stat* st), version, path, st)
CUBE_STAT(__lxstat, is_known(version), AT_FDCWD, path, true,
          (int version, const char* path, struct ::stat* st), version, path, st)
CUBE_STAT(__lxstat64, is_known(version), AT_FDCWD, path, true,
          (int version, const char* path, struct ::stat* st), version, path, st)

#define CUBE_FSTAT(name, known, declaration, ...)                                           \
  int export_##name declaration {                                                           \
    const auto ask = [=](int kernel_fd) { return real::name(__VA_ARGS__); };                \
    if (!(known)) return ask(fd);                                                           \
    CUBE_PLAIN(int, { CUBE_ANSWER_OR(int, calls::stat(fd, st), ask(calls::StatFd(fd))); }); \
    CUBE_PROFILED(stat, .fd = fd, .st = st);                                                \
  }
CUBE_FSTAT(fstat, true, (int fd, struct ::stat* st), kernel_fd, st)
CUBE_FSTAT(fstat64, true, (int fd, struct ::stat* st), kernel_fd, st)
CUBE_FSTAT(__fxstat, is_known(version), (int version, int fd, struct ::stat* st), version,
           kernel_fd, st)
CUBE_FSTAT(__fxstat64, is_known(version), (int version, int fd, struct ::stat* st), version,
           kernel_fd, st)

namespace {

bool flags_are_known(int flags) {
  return (flags & ~(AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH)) == 0;
}
// A call with both sync types is an error.
bool statx_flags_are_known(int flags) {
  return flags_are_known(flags & ~AT_STATX_SYNC_TYPE) &&
         (flags & AT_STATX_SYNC_TYPE) != AT_STATX_SYNC_TYPE;
}
// True for fstatat(fd, "", AT_EMPTY_PATH), which CPython uses for fstat. If the flags are not all
// `known`, the kernel must examine the fd, so its file is materialized. Since 6.11, Linux treats a
// null path like an empty path.
bool names_the_fd(int fd, const char* path, int flags, bool known, const char* call) {
  shim::placeholder::unpark_if(fd);
  if ((flags & AT_EMPTY_PATH) == 0) return false;
  const bool is_named =
      path != nullptr && (!shim::path_filter::is_readable_pointer(path) || *path != '\0');
  if (is_named) return false;
  if (known && path != nullptr) return true;
  shim::materialize(fd, call);
  return false;
}

// Returns the path for the profiler, or null if the subject of the call is the fd.
const char* named_or_null(const char* path, int flags) {
  const bool may_be_empty = (flags & AT_EMPTY_PATH) != 0;
  return may_be_empty && (path == nullptr ||
                          (shim::path_filter::is_readable_pointer(path) && *path == '\0'))
             ? nullptr
             : path;
}

}  // namespace

#define CUBE_FSTATAT(name, known, declaration, ...)                                            \
  int export_##name declaration {                                                              \
    const auto ask = [=](int kernel_fd) { return real::name(__VA_ARGS__); };                   \
    CUBE_PLAIN(int, {                                                                          \
      if (names_the_fd(dir, path, flags, known && flags_are_known(flags), "fstatat")) {        \
        CUBE_ANSWER_OR(int, calls::stat(dir, st), ask(calls::StatFd(dir)));                    \
      }                                                                                        \
      const bool no_follow = (flags & AT_SYMLINK_NOFOLLOW) != 0;                               \
      if (known && flags_are_known(flags)) {                                                   \
        if (const auto answer = known_stat(dir, path, no_follow, st))                          \
          return static_cast<int>(to_c(*answer));                                              \
      }                                                                                        \
      if (flags_are_known(flags) && shim::unmounted_paths::is_below_served(dir, path))         \
        return static_cast<int>(to_c(-shim::unmounted_paths::error_of(dir, path, no_follow))); \
      return shim::told_stat(shim::by_kernel(ask(dir)), dir, path, no_follow,                  \
                             kernels_stat(known, st));                                         \
    });                                                                                        \
    CUBE_PROFILED(stat, .fd = dir, .path = named_or_null(path, flags), .st = st);              \
  }
CUBE_FSTATAT(fstatat, true, (int dir, const char* path, struct ::stat* st, int flags), kernel_fd,
             path, st, flags)
CUBE_FSTATAT(fstatat64, true, (int dir, const char* path, struct ::stat* st, int flags), kernel_fd,
             path, st, flags)
CUBE_FSTATAT(__fxstatat, is_known(version),
             (int version, int dir, const char* path, struct ::stat* st, int flags), version,
             kernel_fd, path, st, flags)
CUBE_FSTATAT(__fxstatat64, is_known(version),
             (int version, int dir, const char* path, struct ::stat* st, int flags), version,
             kernel_fd, path, st, flags)

namespace {
int stat_extended(int dir, const char* path, int flags, unsigned mask, struct ::statx* x) {
  // The flags AT_STATX_* say whether the server must be asked. If the flags require it, the shim
  // must ask, too.
  if (names_the_fd(dir, path, flags, statx_flags_are_known(flags), "statx")) {
    CUBE_ANSWER_OR(int, calls::statx(dir, mask, x),
                   real::statx(calls::StatFd(dir), path, flags, mask, x));
  }
  if (shim::process::is_active()) shim::materialize_named(path, dir);
  cube::cache::FileStat found;
  const bool known = cube::cache::FileStat::answers(mask) && !shim::is_bad_pointer(x, sizeof *x) &&
                     flags_are_known(flags & ~AT_STATX_DONT_SYNC);
  if (known) {
    const shim::StatWish wish{.no_follow = (flags & AT_SYMLINK_NOFOLLOW) != 0, .with_mount = true};
    const auto there = shim::stat_from_record(dir, path, wish, found);
    if (there == shim::Known::absent) return static_cast<int>(to_c(-ENOENT));
    if (there == shim::Known::present) {
      found.copy_to(*x, mask);
      return 0;
    }
  }
  // If the program requests more fields than these, the kernel cannot fill them in for one of our
  // paths, either.
  if ((mask & STATX__RESERVED) == 0 && statx_flags_are_known(flags) &&
      shim::unmounted_paths::stat(dir, path, (flags & AT_SYMLINK_NOFOLLOW) != 0, found)) {
    if (shim::is_bad_pointer(x, sizeof *x)) return static_cast<int>(to_c(-EFAULT));
    found.copy_to(*x, mask);
    return 0;
  }
  const bool no_follow = (flags & AT_SYMLINK_NOFOLLOW) != 0;
  if (statx_flags_are_known(flags) && shim::unmounted_paths::is_below_served(dir, path))
    return static_cast<int>(to_c(-shim::unmounted_paths::error_of(dir, path, no_follow)));
  const int result = shim::by_kernel(real::statx(dir, path, flags, mask, x));
  return shim::told_statx(result, dir, path, no_follow, real::stat_is_anothers() ? nullptr : x);
}
}  // namespace
int export_statx(int dir, const char* path, int flags, unsigned mask, struct ::statx* x) {
  CUBE_PLAIN(int, { return stat_extended(dir, path, flags, mask, x); });
  CUBE_PROFILED(stat, .fd = dir, .path = named_or_null(path, flags));
}

namespace {

// Returns 0 or -errno. Returns nothing if the path is not in memory.
std::optional<long> access_known(int dir, const char* path, int mode) {
  switch (shim::access_from_record(dir, path, mode)) {
    case shim::Known::present: return 0;
    case shim::Known::absent: return -ENOENT;
    case shim::Known::unknown: break;
  }
  return std::nullopt;
}

}  // namespace

#define CUBE_ACCESS(name)                                                        \
  int export_##name(const char* path, int mode) {                                \
    CUBE_PLAIN(int, {                                                            \
      if (const auto known = access_known(AT_FDCWD, path, mode); known)          \
        return static_cast<int>(to_c(*known));                                   \
      CUBE_ANSWER_OR(int, shim::unmounted_paths::access(AT_FDCWD, path, mode),   \
                     shim::told(real::name(path, mode), AT_FDCWD, path, false)); \
    });                                                                          \
    CUBE_PROFILED(access, .fd = AT_FDCWD, .path = path);                         \
  }
CUBE_ACCESS(access)
CUBE_ACCESS(eaccess)
CUBE_ACCESS(euidaccess)
namespace {
int access_at(int dir, const char* path, int mode, int flags) {
  names_the_fd(dir, path, flags, /*known=*/false, "faccessat");
  const bool plain = (flags & ~AT_EACCESS) == 0;
  if (const auto known = plain ? access_known(dir, path, mode) : std::nullopt; known)
    return static_cast<int>(to_c(*known));
  constexpr int k_known = AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH;
  if ((flags & ~k_known) != 0) return real::faccessat(dir, path, mode, flags);
  if (const auto answer =
          shim::unmounted_paths::access(dir, path, mode, (flags & AT_SYMLINK_NOFOLLOW) != 0);
      answer)
    return static_cast<int>(to_c(*answer));
  const bool no_follow = (flags & AT_SYMLINK_NOFOLLOW) != 0;
  if (shim::unmounted_paths::is_below_served(dir, path))
    return static_cast<int>(to_c(-shim::unmounted_paths::error_of(dir, path, no_follow)));
  return shim::told(shim::by_kernel(real::faccessat(dir, path, mode, flags)), dir, path, no_follow);
}
}  // namespace
int export_faccessat(int dir, const char* path, int mode, int flags) {
  CUBE_PLAIN(int, { return access_at(dir, path, mode, flags); });
  CUBE_PROFILED(access, .fd = dir, .path = named_or_null(path, flags));
}
