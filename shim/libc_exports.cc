// libc's names: each asks ours first, then libc. No logic here; hooks.def says which there are.
#include <linux/fs.h>
#include <sys/ioctl.h>

#include <cstdarg>
#include <cstdlib>

#include "shim/c_result.h"
#include "shim/cancellation.h"
#include "shim/exports.h"
#include "shim/file_calls.h"
#include "shim/materialize.h"
#include "shim/name_change.h"
#include "shim/names.h"
#include "shim/new_fds.h"
#include "shim/open_plan.h"
#include "shim/opened_writers.h"
#include "shim/path_calls.h"
#include "shim/placeholder.h"
#include "shim/real_libc.h"
#include "shim/spelling.h"
#include "shim/user_pointer.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;
namespace calls = cube::shim::file_calls;
using cube::shim::OpenPlan;
using cube::shim::to_c;

// The answer of file_calls, if there is one; else libc's.
#define CUBE_ANSWER_OR(type, ours, libcs)                           \
  if (const auto answer = ours; answer) return (type)to_c(*answer); \
  return libcs
// The same for what libc makes a cancellation point.
#define CUBE_CANCEL_OR_ANSWER_OR(type, ours, libcs) \
  shim::cancellation_point();                       \
  CUBE_ANSWER_OR(type, ours, libcs)

// ---- open -----------------------------------------------------------------------------------------------------------

namespace {

// The plan holds a path of 4 KiB, which an open that passes by must not pay for: not in time, and not on a small stack.
template <typename Open>
__attribute__((noinline)) int planned(int dir, const char* path, int flags, Open&& open) {
  shim::cancellation_point();
  OpenPlan plan(dir, path, flags);
  const int fd = plan.is_answered() ? plan.result() : plan.note(open());
  return shim::names::with_error(fd, dir, path, (flags & O_NOFOLLOW) != 0);
}

template <typename Open>
inline int open_by(int dir, const char* path, int flags, Open&& open) {
  constexpr int k_interesting = O_ACCMODE | O_CREAT | O_TRUNC | O_DIRECTORY;
  if (!shim::process::is_active()) return open();
  if ((flags & k_interesting) == O_RDONLY && shim::path_filter::passes_by(path)) {
    shim::expect_new_fd();
    const int fd = shim::noted(open());
    shim::spelling::opened_outside(fd, path);
    return fd;
  }
  return planned(dir, path, flags, open);
}

}  // namespace

#define CUBE_OPEN(name, dir, path, declaration, ...)                                        \
  int export_##name declaration {                                                           \
    va_list list;                                                                           \
    va_start(list, flags);                                                                  \
    const auto mode = static_cast<mode_t>(va_arg(list, unsigned));                          \
    va_end(list);                                                                           \
    return open_by(dir, path, flags, [&] { return real::name(__VA_ARGS__, flags, mode); }); \
  }
CUBE_OPEN(open, AT_FDCWD, path, (const char* path, int flags, ...), path)
CUBE_OPEN(open64, AT_FDCWD, path, (const char* path, int flags, ...), path)
CUBE_OPEN(__open, AT_FDCWD, path, (const char* path, int flags, ...), path)
CUBE_OPEN(__open64, AT_FDCWD, path, (const char* path, int flags, ...), path)
CUBE_OPEN(openat, dir, path, (int dir, const char* path, int flags, ...), dir, path)
CUBE_OPEN(openat64, dir, path, (int dir, const char* path, int flags, ...), dir, path)

#define CUBE_OPEN_FIXED(name, dir, path, flags, declaration, ...)              \
  int export_##name declaration {                                              \
    return open_by(dir, path, flags, [&] { return real::name(__VA_ARGS__); }); \
  }
CUBE_OPEN_FIXED(__open_2, AT_FDCWD, path, flags, (const char* path, int flags), path, flags)
CUBE_OPEN_FIXED(__open64_2, AT_FDCWD, path, flags, (const char* path, int flags), path, flags)
CUBE_OPEN_FIXED(__openat_2, dir, path, flags, (int dir, const char* path, int flags), dir, path, flags)
CUBE_OPEN_FIXED(__openat64_2, dir, path, flags, (int dir, const char* path, int flags), dir, path, flags)
constexpr int k_creat = O_CREAT | O_WRONLY | O_TRUNC;
CUBE_OPEN_FIXED(creat, AT_FDCWD, path, k_creat, (const char* path, mode_t mode), path, mode)
CUBE_OPEN_FIXED(creat64, AT_FDCWD, path, k_creat, (const char* path, mode_t mode), path, mode)
constexpr int k_temporary = O_CREAT | O_EXCL | O_RDWR;
CUBE_OPEN_FIXED(mkstemp, AT_FDCWD, pattern, k_temporary, (char* pattern), pattern)
CUBE_OPEN_FIXED(mkstemp64, AT_FDCWD, pattern, k_temporary, (char* pattern), pattern)
CUBE_OPEN_FIXED(mkostemp, AT_FDCWD, pattern, k_temporary | flags, (char* pattern, int flags), pattern, flags)
CUBE_OPEN_FIXED(mkostemp64, AT_FDCWD, pattern, k_temporary | flags, (char* pattern, int flags), pattern, flags)
CUBE_OPEN_FIXED(mkstemps, AT_FDCWD, pattern, k_temporary, (char* pattern, int suffix), pattern, suffix)
CUBE_OPEN_FIXED(mkstemps64, AT_FDCWD, pattern, k_temporary, (char* pattern, int suffix), pattern, suffix)
CUBE_OPEN_FIXED(mkostemps, AT_FDCWD, pattern, k_temporary | flags, (char* pattern, int suffix, int flags), pattern, suffix, flags)
CUBE_OPEN_FIXED(mkostemps64, AT_FDCWD, pattern, k_temporary | flags, (char* pattern, int suffix, int flags), pattern, suffix,
                flags)

DIR* export_opendir(const char* path) {
  DIR* directory = nullptr;
  const int fd = open_by(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC, [&] {
    directory = real::opendir(path);
    return directory != nullptr ? ::dirfd(directory) : -1;
  });
  // For a name of ours there is only the number yet.
  if (directory == nullptr && fd >= 0) {
    directory = real::fdopendir(fd);
    if (directory == nullptr) export_close(fd);
  }
  return directory;
}
int export_closedir(DIR* directory) {
  if (directory == nullptr || !shim::process::is_active()) return real::closedir(directory);
  const auto held = calls::note_close(::dirfd(directory));
  return real::closedir(directory);
}

// ---- stat and access ------------------------------------------------------------------------------------------------

namespace {

// The structures that __xstat and its kin know; for others libc says EINVAL.
bool is_known(int version) { return version == 0 || version == 1; }

}  // namespace

#define CUBE_STAT(name, known, dir, path, no_follow, declaration, ...)                                           \
  int export_##name declaration {                                                                                \
    cube::cache::FileStat found;                                                                                 \
    if (known && !shim::is_bad_pointer(st, sizeof *st) && shim::stat_from_record(dir, path, no_follow, found)) { \
      found.copy_to(*st);                                                                                        \
      return 0;                                                                                                  \
    }                                                                                                            \
    return shim::names::with_error(real::name(__VA_ARGS__), dir, path, no_follow);                               \
  }
CUBE_STAT(stat, true, AT_FDCWD, path, false, (const char* path, struct ::stat* st), path, st)
CUBE_STAT(stat64, true, AT_FDCWD, path, false, (const char* path, struct ::stat* st), path, st)
CUBE_STAT(lstat, true, AT_FDCWD, path, true, (const char* path, struct ::stat* st), path, st)
CUBE_STAT(lstat64, true, AT_FDCWD, path, true, (const char* path, struct ::stat* st), path, st)
CUBE_STAT(__xstat, is_known(version), AT_FDCWD, path, false, (int version, const char* path, struct ::stat* st), version, path,
          st)
CUBE_STAT(__xstat64, is_known(version), AT_FDCWD, path, false, (int version, const char* path, struct ::stat* st), version, path,
          st)
CUBE_STAT(__lxstat, is_known(version), AT_FDCWD, path, true, (int version, const char* path, struct ::stat* st), version, path,
          st)
CUBE_STAT(__lxstat64, is_known(version), AT_FDCWD, path, true, (int version, const char* path, struct ::stat* st), version, path,
          st)

#define CUBE_FSTAT(name, known, declaration, ...)                      \
  int export_##name declaration {                                      \
    if (!(known)) return real::name(__VA_ARGS__);                      \
    CUBE_ANSWER_OR(int, calls::stat(fd, st), real::name(__VA_ARGS__)); \
  }
CUBE_FSTAT(fstat, true, (int fd, struct ::stat* st), fd, st)
CUBE_FSTAT(fstat64, true, (int fd, struct ::stat* st), fd, st)
CUBE_FSTAT(__fxstat, is_known(version), (int version, int fd, struct ::stat* st), version, fd, st)
CUBE_FSTAT(__fxstat64, is_known(version), (int version, int fd, struct ::stat* st), version, fd, st)

namespace {

bool flags_are_known(int flags) { return (flags & ~(AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH)) == 0; }
// Both sync types at once are an error.
bool statx_flags_are_known(int flags) {
  return flags_are_known(flags & ~AT_STATX_SYNC_TYPE) && (flags & AT_STATX_SYNC_TYPE) != AT_STATX_SYNC_TYPE;
}
// fstatat(fd, "", AT_EMPTY_PATH) is fstat, and CPython's way of it. `known`: are the other flags? Else the kernel looks at the
// fd itself; so it does from Linux 6.11 on where the path is null.
bool names_the_fd(int fd, const char* path, int flags, bool known, const char* call) {
  shim::placeholder::unpark_if(fd);
  if ((flags & AT_EMPTY_PATH) == 0 || (path != nullptr && *path != '\0')) return false;
  if (known && path != nullptr) return true;
  shim::materialize(fd, call);
  return false;
}

}  // namespace

#define CUBE_FSTATAT(name, known, declaration, ...)                                   \
  int export_##name declaration {                                                     \
    if (names_the_fd(dir, path, flags, known && flags_are_known(flags), "fstatat")) { \
      CUBE_ANSWER_OR(int, calls::stat(dir, st), real::name(__VA_ARGS__));             \
    }                                                                                 \
    cube::cache::FileStat found;                                                      \
    const bool no_follow = (flags & AT_SYMLINK_NOFOLLOW) != 0;                        \
    if (known && !shim::is_bad_pointer(st, sizeof *st) && flags_are_known(flags) &&   \
        shim::stat_from_record(dir, path, no_follow, found)) {                        \
      found.copy_to(*st);                                                             \
      return 0;                                                                       \
    }                                                                                 \
    if (flags_are_known(flags) && shim::names::is_below_served(dir, path))            \
      return static_cast<int>(to_c(-shim::names::error_of(dir, path, no_follow)));    \
    return shim::names::with_error(real::name(__VA_ARGS__), dir, path, no_follow);    \
  }
CUBE_FSTATAT(fstatat, true, (int dir, const char* path, struct ::stat* st, int flags), dir, path, st, flags)
CUBE_FSTATAT(fstatat64, true, (int dir, const char* path, struct ::stat* st, int flags), dir, path, st, flags)
CUBE_FSTATAT(__fxstatat, is_known(version), (int version, int dir, const char* path, struct ::stat* st, int flags), version, dir,
             path, st, flags)
CUBE_FSTATAT(__fxstatat64, is_known(version), (int version, int dir, const char* path, struct ::stat* st, int flags), version,
             dir, path, st, flags)

int export_statx(int dir, const char* path, int flags, unsigned mask, struct ::statx* x) {
  // How hard the origin is asked (AT_STATX_*) is not ours to weaken.
  if (names_the_fd(dir, path, flags, statx_flags_are_known(flags), "statx")) {
    CUBE_ANSWER_OR(int, calls::statx(dir, mask, x), real::statx(dir, path, flags, mask, x));
  }
  shim::materialize_named(path, dir);
  cube::cache::FileStat found;
  const bool known =
      cube::cache::FileStat::answers(mask) && !shim::is_bad_pointer(x, sizeof *x) && flags_are_known(flags & ~AT_STATX_DONT_SYNC);
  if (known && shim::stat_from_record(dir, path, (flags & AT_SYMLINK_NOFOLLOW) != 0, found, /*with_mount=*/true)) {
    found.copy_to(*x, mask);
    return 0;
  }
  // The kernel cannot say more of it, whatever else is asked for.
  if (!shim::is_bad_pointer(x, sizeof *x) && (mask & STATX__RESERVED) == 0 && statx_flags_are_known(flags) &&
      shim::names::stat(dir, path, (flags & AT_SYMLINK_NOFOLLOW) != 0, found)) {
    found.copy_to(*x, mask);
    return 0;
  }
  const bool no_follow = (flags & AT_SYMLINK_NOFOLLOW) != 0;
  if (statx_flags_are_known(flags) && shim::names::is_below_served(dir, path))
    return static_cast<int>(to_c(-shim::names::error_of(dir, path, no_follow)));
  return shim::names::with_error(real::statx(dir, path, flags, mask, x), dir, path, no_follow);
}

int export_access(const char* path, int mode) {
  if (shim::access_from_record(AT_FDCWD, path, mode)) return 0;
  CUBE_ANSWER_OR(int, shim::names::access(AT_FDCWD, path, mode),
                 shim::names::with_error(real::access(path, mode), AT_FDCWD, path, false));
}
int export_eaccess(const char* path, int mode) {
  if (shim::access_from_record(AT_FDCWD, path, mode)) return 0;
  CUBE_ANSWER_OR(int, shim::names::access(AT_FDCWD, path, mode),
                 shim::names::with_error(real::eaccess(path, mode), AT_FDCWD, path, false));
}
int export_euidaccess(const char* path, int mode) {
  if (shim::access_from_record(AT_FDCWD, path, mode)) return 0;
  CUBE_ANSWER_OR(int, shim::names::access(AT_FDCWD, path, mode),
                 shim::names::with_error(real::euidaccess(path, mode), AT_FDCWD, path, false));
}
int export_faccessat(int dir, const char* path, int mode, int flags) {
  names_the_fd(dir, path, flags, /*known=*/false, "faccessat");
  const bool plain = (flags & ~AT_EACCESS) == 0;
  if (plain && shim::access_from_record(dir, path, mode)) return 0;
  constexpr int k_known = AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH;
  if ((flags & ~k_known) != 0) return real::faccessat(dir, path, mode, flags);
  if (const auto answer = shim::names::access(dir, path, mode, (flags & AT_SYMLINK_NOFOLLOW) != 0); answer)
    return static_cast<int>(to_c(*answer));
  const bool no_follow = (flags & AT_SYMLINK_NOFOLLOW) != 0;
  if (shim::names::is_below_served(dir, path)) return static_cast<int>(to_c(-shim::names::error_of(dir, path, no_follow)));
  return shim::names::with_error(real::faccessat(dir, path, mode, flags), dir, path, no_follow);
}

// ---- read and position ----------------------------------------------------------------------------------------------

ssize_t export_read(int fd, void* to, size_t n) {
  CUBE_CANCEL_OR_ANSWER_OR(ssize_t, calls::read(fd, to, n), real::read(fd, to, n));
}
ssize_t export___read(int fd, void* to, size_t n) {
  CUBE_CANCEL_OR_ANSWER_OR(ssize_t, calls::read(fd, to, n), real::__read(fd, to, n));
}
// The fortified forms end the program where the buffer is too small; libc does that best.
ssize_t export___read_chk(int fd, void* to, size_t n, size_t room) {
  if (n > room) return real::__read_chk(fd, to, n, room);
  CUBE_CANCEL_OR_ANSWER_OR(ssize_t, calls::read(fd, to, n), real::__read_chk(fd, to, n, room));
}
#define CUBE_PREAD(name)                                                                       \
  ssize_t export_##name(int fd, void* to, size_t n, off_t at) {                                \
    CUBE_CANCEL_OR_ANSWER_OR(ssize_t, calls::pread(fd, to, n, at), real::name(fd, to, n, at)); \
  }
CUBE_PREAD(pread)
CUBE_PREAD(pread64)
CUBE_PREAD(__pread64)
#define CUBE_PREAD_CHK(name)                                                                         \
  ssize_t export_##name(int fd, void* to, size_t n, off_t at, size_t room) {                         \
    if (n > room) return real::name(fd, to, n, at, room);                                            \
    CUBE_CANCEL_OR_ANSWER_OR(ssize_t, calls::pread(fd, to, n, at), real::name(fd, to, n, at, room)); \
  }
CUBE_PREAD_CHK(__pread_chk)
CUBE_PREAD_CHK(__pread64_chk)
ssize_t export_readv(int fd, const struct ::iovec* parts, int count) {
  CUBE_CANCEL_OR_ANSWER_OR(ssize_t, calls::readv(fd, parts, count), real::readv(fd, parts, count));
}
#define CUBE_PREADV(name)                                                                                     \
  ssize_t export_##name(int fd, const struct ::iovec* parts, int count, off_t at) {                           \
    CUBE_CANCEL_OR_ANSWER_OR(ssize_t, calls::preadv(fd, parts, count, at), real::name(fd, parts, count, at)); \
  }
CUBE_PREADV(preadv)
CUBE_PREADV(preadv64)
// At -1 preadv2 reads at the file's own offset. The file system decides which flags there are.
#define CUBE_PREADV2(name)                                                                                             \
  ssize_t export_##name(int fd, const struct ::iovec* parts, int count, off_t at, int flags) {                         \
    if (flags != 0) shim::materialize(fd);                                                                             \
    CUBE_CANCEL_OR_ANSWER_OR(ssize_t, at == -1 ? calls::readv(fd, parts, count) : calls::preadv(fd, parts, count, at), \
                             real::name(fd, parts, count, at, flags));                                                 \
  }
CUBE_PREADV2(preadv2)
CUBE_PREADV2(preadv64v2)
#define CUBE_LSEEK(name)                                                                     \
  off_t export_##name(int fd, off_t offset, int whence) {                                    \
    CUBE_ANSWER_OR(off_t, calls::lseek(fd, offset, whence), real::name(fd, offset, whence)); \
  }
CUBE_LSEEK(lseek)
CUBE_LSEEK(lseek64)
CUBE_LSEEK(__lseek)

// posix_fadvise returns the error itself.
#define CUBE_FADVISE(name)                                                                    \
  int export_##name(int fd, off_t at, off_t n, int advice) {                                  \
    const bool known = advice >= POSIX_FADV_NORMAL && advice <= POSIX_FADV_NOREUSE && n >= 0; \
    if (known && calls::advise(fd)) return 0;                                                 \
    shim::materialize(fd);                                                                    \
    return real::name(fd, at, n, advice);                                                     \
  }
CUBE_FADVISE(posix_fadvise)
CUBE_FADVISE(posix_fadvise64)
ssize_t export_readahead(int fd, off_t at, size_t n) { CUBE_ANSWER_OR(ssize_t, calls::advise(fd), real::readahead(fd, at, n)); }

// ---- the fd itself --------------------------------------------------------------------------------------------------

int export_close(int fd) {
  shim::cancellation_point();
  if (const auto answer = calls::close(fd); answer) return static_cast<int>(to_c(*answer));
  const auto held = calls::note_close(fd);
  return real::close(fd);
}
int export___close(int fd) {
  shim::cancellation_point();
  if (const auto answer = calls::close(fd); answer) return static_cast<int>(to_c(*answer));
  const auto held = calls::note_close(fd);
  return real::__close(fd);
}
int export_close_range(unsigned first, unsigned last, int flags) {
  calls::close_range(first, last, flags);
  const int result = real::close_range(first, last, flags);
  calls::range_is_closed(first);
  return result;
}
void export_closefrom(int first) {
  const unsigned least = first < 0 ? 0U : static_cast<unsigned>(first);
  calls::close_range(least, ~0U, 0);
  real::closefrom(first);
  calls::range_is_closed(least);
}
int export_dup(int fd) {
  if (const auto answer = calls::dup(fd); answer) return static_cast<int>(to_c(*answer));
  shim::expect_new_fd();
  return shim::noted_dup(fd, real::dup(fd), false);
}
int export_dup2(int fd, int to) {
  CUBE_ANSWER_OR(int, calls::dup_to(fd, to, 0, false), shim::noted_dup(fd, real::dup2(fd, to), false));
}
int export___dup2(int fd, int to) {
  CUBE_ANSWER_OR(int, calls::dup_to(fd, to, 0, false), shim::noted_dup(fd, real::__dup2(fd, to), false));
}
int export_dup3(int fd, int to, int flags) {
  if ((flags & ~O_CLOEXEC) != 0) return real::dup3(fd, to, flags);
  CUBE_ANSWER_OR(int, calls::dup_to(fd, to, flags, true), shim::noted_dup(fd, real::dup3(fd, to, flags), flags != 0));
}

int export_ioctl(int fd, unsigned long request, ...) {
  va_list list;
  va_start(list, request);
  void* const argument = va_arg(list, void*);
  va_end(list);
  if (const auto answer = calls::ioctl(fd, request, argument); answer) return static_cast<int>(to_c(*answer));
  const int result = real::ioctl(fd, request, argument);
  const bool changes = request == FS_IOC_SETFLAGS || request == FS_IOC_FSSETXATTR || request == FS_IOC_SETVERSION;
  if (changes && result == 0) shim::note_changed(fd);
  return result;
}
int export_isatty(int fd) {
  if (const auto answer = calls::ioctl(fd, TCGETS, nullptr); answer) {
    errno = ENOTTY;
    return 0;
  }
  return real::isatty(fd);
}
int export_tcgetattr(int fd, struct ::termios* t) {
  CUBE_ANSWER_OR(int, calls::ioctl(fd, TCGETS, nullptr), real::tcgetattr(fd, t));
}

// ---- one fd, not answered; fds from elsewhere ------------------------------------------------------------------------

namespace {

// Before a change of what the fd leads to. The times of a directory say nothing of what lies below it, and its own attributes
// may be an access list.
shim::Passage passage_before(std::string_view call, int fd) {
  if (call.starts_with("futime")) return {};
  return call.ends_with("xattr") ? shim::passage_by_attribute(fd, "", "system.") : shim::passage_of(fd, "");
}

}  // namespace

#define CUBE_HOOK(result, name, parameters)
#define CUBE_FD_CALL(result, name, parameters, arguments) \
  result export_##name parameters {                       \
    shim::materialize(fd);                                \
    return real::name arguments;                          \
  }
#define CUBE_FD_CHANGE(result, name, parameters, arguments)                      \
  result export_##name parameters {                                              \
    if (shim::names::is_read_only(fd)) return static_cast<result>(to_c(-EROFS)); \
    shim::materialize(fd);                                                       \
    const shim::Passage before = passage_before(#name, fd);                      \
    const result outcome = real::name arguments;                                 \
    if (outcome == 0) shim::note_changed(fd, before);                            \
    return outcome;                                                              \
  }
#define CUBE_NEW_FD(result, name, parameters, arguments) \
  result export_##name parameters {                      \
    shim::expect_new_fd();                               \
    return shim::noted(real::name arguments);            \
  }
#include "shim/hooks.def"

// The same, of an fd that may be served.
#define CUBE_NEW_FD_OF(name, of, declaration, ...) \
  int export_##name declaration {                  \
    shim::materialize(of);                         \
    shim::expect_new_fd();                         \
    return shim::noted(real::name(__VA_ARGS__));   \
  }
CUBE_NEW_FD_OF(accept, fd, (int fd, struct ::sockaddr* a, socklen_t* n), fd, a, n)
CUBE_NEW_FD_OF(accept4, fd, (int fd, struct ::sockaddr* a, socklen_t* n, int flags), fd, a, n, flags)

// The same, and what has come may be written by.
#define CUBE_FOREIGN_FD_OF(name, of, declaration, ...)     \
  int export_##name declaration {                          \
    shim::materialize(of);                                 \
    shim::expect_new_fd();                                 \
    return shim::note_foreign_fd(real::name(__VA_ARGS__)); \
  }
CUBE_FOREIGN_FD_OF(open_by_handle_at, mount, (int mount, struct ::file_handle* handle, int flags), mount, handle, flags)
// A process may take its own.
CUBE_FOREIGN_FD_OF(pidfd_getfd, target, (int pidfd, int target, unsigned flags), pidfd, target, flags)

int export_socketpair(int family, int type, int protocol, int* fds) {
  shim::expect_new_fd();
  return shim::noted_pair(real::socketpair(family, type, protocol, fds), fds);
}
int export_pipe(int* fds) {
  shim::expect_new_fd();
  return shim::noted_pair(real::pipe(fds), fds);
}
int export_pipe2(int* fds, int flags) {
  shim::expect_new_fd();
  return shim::noted_pair(real::pipe2(fds, flags), fds);
}
