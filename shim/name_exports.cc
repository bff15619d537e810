// Calls that change names or what files hold: made by libc, and what the cache knew of them is dropped at once. Also the
// calls that follow /proc/self/fd, and those after which paths or permissions mean something else.
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>

#include "cache/base/aside.h"
#include "cache/base/clock.h"
#include "shim/c_result.h"
#include "shim/exports.h"
#include "shim/file_calls.h"
#include "shim/materialize.h"
#include "shim/name_change.h"
#include "shim/names.h"
#include "shim/path_calls.h"
#include "shim/real_libc.h"
#include "shim/user_pointer.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;
using cube::shim::NameChange;

namespace {

// For calls with two names, whose paths are more than the smallest stacks hold.
template <typename Call>
int change_both(int from_dir, const char* from, int to_dir, const char* to, Call&& call) {
  static_assert(std::is_trivially_destructible_v<NameChange>);
  struct Room {
    alignas(NameChange) std::byte bytes[sizeof(NameChange)];
  };
  return cube::base::use_aside<Room>([&](Room& first) {
    return cube::base::use_aside<Room>([&](Room& second) {
      auto& source = *new (first.bytes) NameChange(from_dir, from);
      auto& target = *new (second.bytes) NameChange(to_dir, to);
      const int result = call();
      if (result == 0) {
        source.commit();
        target.commit();
      }
      return result;
    });
  });
}

// For one of our names.
int refuse(int error = EROFS) {
  errno = error;
  return -1;
}

}  // namespace

#define CUBE_CHANGES(name, passage, dir, path, of, declaration, ...) \
  int export_##name declaration {                                    \
    shim::placeholder::unpark_if(dir);                               \
    if (shim::names::is_read_only(dir, path)) return refuse();       \
    NameChange change(dir, path, of);                                \
    const shim::Passage before = passage;                            \
    const int result = real::name(__VA_ARGS__);                      \
    if (result == 0) change.commit(before);                          \
    return result;                                                   \
  }
#define CUBE_CHANGES_ONE(name, ...) CUBE_CHANGES(name, shim::Passage(), __VA_ARGS__)
#define CUBE_CHANGES_RIGHTS(name, dir, ...) CUBE_CHANGES(name, shim::passage_of(dir, path), dir, __VA_ARGS__)
#define CUBE_CHANGES_LIST(call, ...) CUBE_CHANGES(call, shim::passage_by_attribute(AT_FDCWD, path, name), __VA_ARGS__)
CUBE_CHANGES_ONE(truncate, AT_FDCWD, path, NameChange::Of::file, (const char* path, off_t n), path, n)
CUBE_CHANGES_ONE(truncate64, AT_FDCWD, path, NameChange::Of::file, (const char* path, off_t n), path, n)
CUBE_CHANGES_ONE(unlink, AT_FDCWD, path, NameChange::Of::name, (const char* path), path)
CUBE_CHANGES_ONE(unlinkat, dir, path, NameChange::Of::name, (int dir, const char* path, int flags), dir, path, flags)
CUBE_CHANGES_ONE(remove, AT_FDCWD, path, NameChange::Of::name, (const char* path), path)
CUBE_CHANGES_ONE(utime, AT_FDCWD, path, NameChange::Of::file, (const char* path, const struct ::utimbuf* times), path, times)
CUBE_CHANGES_ONE(utimes, AT_FDCWD, path, NameChange::Of::file, (const char* path, const struct ::timeval* times), path, times)
CUBE_CHANGES_ONE(lutimes, AT_FDCWD, path, NameChange::Of::file_or_link, (const char* path, const struct ::timeval* times), path,
                 times)
CUBE_CHANGES_ONE(futimesat, dir, path, NameChange::Of::file, (int dir, const char* path, const struct ::timeval* times), dir,
                 path, times)
CUBE_CHANGES_ONE(utimensat, dir, path, NameChange::file_by((flags & AT_SYMLINK_NOFOLLOW) == 0),
                 (int dir, const char* path, const struct ::timespec* times, int flags), dir, path, times, flags)
CUBE_CHANGES_RIGHTS(chmod, AT_FDCWD, path, NameChange::Of::file, (const char* path, mode_t mode), path, mode)
CUBE_CHANGES_RIGHTS(lchmod, AT_FDCWD, path, NameChange::Of::file_or_link, (const char* path, mode_t mode), path, mode)
CUBE_CHANGES_RIGHTS(fchmodat, dir, path, NameChange::file_by((flags & AT_SYMLINK_NOFOLLOW) == 0),
                    (int dir, const char* path, mode_t mode, int flags), dir, path, mode, flags)
CUBE_CHANGES_RIGHTS(chown, AT_FDCWD, path, NameChange::Of::file, (const char* path, uid_t user, gid_t group), path, user, group)
CUBE_CHANGES_RIGHTS(lchown, AT_FDCWD, path, NameChange::Of::file_or_link, (const char* path, uid_t user, gid_t group), path, user,
                    group)
CUBE_CHANGES_RIGHTS(fchownat, dir, path, NameChange::file_by((flags & AT_SYMLINK_NOFOLLOW) == 0),
                    (int dir, const char* path, uid_t user, gid_t group, int flags), dir, path, user, group, flags)
CUBE_CHANGES_LIST(setxattr, AT_FDCWD, path, NameChange::Of::file,
                  (const char* path, const char* name, const void* value, size_t n, int flags), path, name, value, n, flags)
CUBE_CHANGES_LIST(lsetxattr, AT_FDCWD, path, NameChange::Of::file_or_link,
                  (const char* path, const char* name, const void* value, size_t n, int flags), path, name, value, n, flags)
CUBE_CHANGES_LIST(removexattr, AT_FDCWD, path, NameChange::Of::file, (const char* path, const char* name), path, name)
CUBE_CHANGES_LIST(lremovexattr, AT_FDCWD, path, NameChange::Of::file_or_link, (const char* path, const char* name), path, name)
// A new name changes the link count of the old one.
#define CUBE_LINKS(name, from_dir, to_dir, follows, declaration, ...)                              \
  int export_##name declaration {                                                                  \
    for (const int dir : {from_dir, to_dir}) shim::placeholder::unpark_if(dir);                    \
    if (const int error = shim::names::error_of_new(to_dir, to); error != 0) return refuse(error); \
    if (shim::names::is_read_only(from_dir, from)) return refuse();                                \
    NameChange change(from_dir, from, NameChange::file_by(follows));                               \
    const int result = real::name(__VA_ARGS__);                                                    \
    if (result == 0) change.commit();                                                              \
    return result;                                                                                 \
  }
CUBE_LINKS(link, AT_FDCWD, AT_FDCWD, false, (const char* from, const char* to), from, to)
CUBE_LINKS(linkat, from_dir, to_dir, (flags & AT_SYMLINK_FOLLOW) != 0,
           (int from_dir, const char* from, int to_dir, const char* to, int flags), from_dir, from, to_dir, to, flags)

// New names matter only where there can be none.
#define CUBE_MAKES(name, dir, declaration, ...)                                                   \
  int export_##name declaration {                                                                 \
    shim::placeholder::unpark_if(dir);                                                            \
    if (const int error = shim::names::error_of_new(dir, path); error != 0) return refuse(error); \
    return real::name(__VA_ARGS__);                                                               \
  }
CUBE_MAKES(mkdir, AT_FDCWD, (const char* path, mode_t mode), path, mode)
CUBE_MAKES(mkdirat, dir, (int dir, const char* path, mode_t mode), dir, path, mode)
CUBE_MAKES(symlink, AT_FDCWD, (const char* target, const char* path), target, path)
CUBE_MAKES(symlinkat, dir, (const char* target, int dir, const char* path), target, dir, path)
CUBE_MAKES(mknod, AT_FDCWD, (const char* path, mode_t mode, dev_t device), path, mode, device)
CUBE_MAKES(mknodat, dir, (int dir, const char* path, mode_t mode, dev_t device), dir, path, mode, device)
CUBE_MAKES(__xmknod, AT_FDCWD, (int version, const char* path, mode_t mode, dev_t* device), version, path, mode, device)
CUBE_MAKES(__xmknodat, dir, (int version, int dir, const char* path, mode_t mode, dev_t* device), version, dir, path, mode,
           device)
CUBE_MAKES(mkfifo, AT_FDCWD, (const char* path, mode_t mode), path, mode)
CUBE_MAKES(mkfifoat, dir, (int dir, const char* path, mode_t mode), dir, path, mode)
char* export_mkdtemp(char* pattern) {
  if (!shim::names::is_read_only(AT_FDCWD, pattern)) return real::mkdtemp(pattern);
  errno = EROFS;
  return nullptr;
}
int export_rmdir(const char* path) { return shim::names::is_read_only(AT_FDCWD, path) ? refuse() : real::rmdir(path); }

// All below a mount point is another tree from now on.
CUBE_CHANGES_ONE(mount, AT_FDCWD, target, NameChange::Of::mount_point,
                 (const char* source, const char* target, const char* type, unsigned long flags, const void* data), source,
                 target, type, flags, data)
CUBE_CHANGES_ONE(umount, AT_FDCWD, target, NameChange::Of::mount_point, (const char* target), target)
CUBE_CHANGES_ONE(umount2, AT_FDCWD, target, NameChange::Of::mount_point, (const char* target, int flags), target, flags)

#define CUBE_RENAMES(name, from_dir, to_dir, declaration, ...)                                               \
  int export_##name declaration {                                                                            \
    for (const int dir : {from_dir, to_dir}) shim::placeholder::unpark_if(dir);                              \
    if (shim::names::is_read_only(from_dir, from) || shim::names::is_read_only(to_dir, to)) return refuse(); \
    return change_both(from_dir, from, to_dir, to, [&] { return real::name(__VA_ARGS__); });                 \
  }
CUBE_RENAMES(rename, AT_FDCWD, AT_FDCWD, (const char* from, const char* to), from, to)
CUBE_RENAMES(renameat, from_dir, to_dir, (int from_dir, const char* from, int to_dir, const char* to), from_dir, from, to_dir, to)
CUBE_RENAMES(renameat2, from_dir, to_dir, (int from_dir, const char* from, int to_dir, const char* to, unsigned flags), from_dir,
             from, to_dir, to, flags)

// ---- names of fds: the kernel looks at the number itself --------------------------------------------------------------

namespace {

void follow(const char* path, int dir = AT_FDCWD) {
  shim::placeholder::unpark_if(dir);
  if (!shim::process::is_active()) return;
  // The file of the fd itself, by AT_EMPTY_PATH.
  if (dir >= 0 && path != nullptr && *path == '\0') shim::materialize(dir, "linkat");
  shim::materialize_named(path, dir);
}

}  // namespace

ssize_t export_readlink(const char* path, char* to, size_t n) {
  follow(path);
  if (const auto answer = shim::names::readlink(AT_FDCWD, path, to, n); answer) return shim::to_c(*answer);
  return shim::names::with_error(real::readlink(path, to, n), AT_FDCWD, path, true);
}
ssize_t export___readlink_chk(const char* path, char* to, size_t n, size_t room) {
  follow(path);
  if (const auto answer = n <= room ? shim::names::readlink(AT_FDCWD, path, to, n) : std::nullopt; answer)
    return shim::to_c(*answer);
  return shim::names::with_error(real::__readlink_chk(path, to, n, room), AT_FDCWD, path, true);
}
ssize_t export_readlinkat(int dir, const char* path, char* to, size_t n) {
  follow(path, dir);
  if (const auto answer = shim::names::readlink(dir, path, to, n); answer) return shim::to_c(*answer);
  if (shim::names::is_below_served(dir, path)) return refuse(shim::names::error_of(dir, path, true));
  return shim::names::with_error(real::readlinkat(dir, path, to, n), dir, path, true);
}
ssize_t export___readlinkat_chk(int dir, const char* path, char* to, size_t n, size_t room) {
  follow(path, dir);
  if (const auto answer = n <= room ? shim::names::readlink(dir, path, to, n) : std::nullopt; answer) return shim::to_c(*answer);
  if (n <= room && shim::names::is_below_served(dir, path)) return refuse(shim::names::error_of(dir, path, true));
  return shim::names::with_error(real::__readlinkat_chk(dir, path, to, n, room), dir, path, true);
}
char* export_realpath(const char* path, char* to) {
  follow(path);
  char ours[PATH_MAX];
  if (shim::names::realpath(path, ours)) return to != nullptr ? std::strcpy(to, ours) : ::strdup(ours);
  char* const found = real::realpath(path, to);
  if (found == nullptr) shim::names::with_error(-1, AT_FDCWD, path, /*no_follow=*/false);
  return found;
}
char* export___realpath_chk(const char* path, char* to, size_t room) {
  if (room >= PATH_MAX) return export_realpath(path, to);
  follow(path);
  return real::__realpath_chk(path, to, room);
}
char* export_canonicalize_file_name(const char* path) { return export_realpath(path, nullptr); }
#define CUBE_FOLLOWS(result, name, dir, path, declaration, ...) \
  result export_##name declaration {                            \
    follow(path, dir);                                          \
    return real::name(__VA_ARGS__);                             \
  }
// The file system that our names make up.
#define CUBE_FILE_SYSTEM(name, type)                                                            \
  int export_##name(const char* path, struct ::type* s) {                                       \
    follow(path);                                                                               \
    if (!shim::is_bad_pointer(s, sizeof *s) && shim::names::type(AT_FDCWD, path, *s)) return 0; \
    return real::name(path, s);                                                                 \
  }                                                                                             \
  int export_f##name(int fd, struct ::type* s) {                                                \
    shim::materialize(fd);                                                                      \
    if (!shim::is_bad_pointer(s, sizeof *s) && shim::names::type(fd, nullptr, *s)) return 0;    \
    return real::f##name(fd, s);                                                                \
  }
CUBE_FILE_SYSTEM(statfs, statfs)
CUBE_FILE_SYSTEM(statfs64, statfs)
CUBE_FILE_SYSTEM(statvfs, statvfs)
CUBE_FILE_SYSTEM(statvfs64, statvfs)
CUBE_FOLLOWS(long, pathconf, AT_FDCWD, path, (const char* path, int name), path, name)
// Our names have none: there is no such attribute, and the list of all is empty.
#define CUBE_XATTR(name, no_follow, if_ours, declaration, ...)                          \
  ssize_t export_##name declaration {                                                   \
    follow(path);                                                                       \
    cube::cache::FileStat stat;                                                         \
    if (shim::names::stat(AT_FDCWD, path, no_follow, stat)) return if_ours;             \
    return shim::names::with_error(real::name(__VA_ARGS__), AT_FDCWD, path, no_follow); \
  }
CUBE_XATTR(getxattr, false, refuse(ENOTSUP), (const char* path, const char* name, void* value, size_t n), path, name, value, n)
CUBE_XATTR(lgetxattr, true, refuse(ENOTSUP), (const char* path, const char* name, void* value, size_t n), path, name, value, n)
CUBE_XATTR(listxattr, false, 0, (const char* path, char* list, size_t n), path, list, n)
CUBE_XATTR(llistxattr, true, 0, (const char* path, char* list, size_t n), path, list, n)
CUBE_FOLLOWS(int, name_to_handle_at, dir, path, (int dir, const char* path, struct ::file_handle* handle, int* mount, int flags),
             dir, path, handle, mount, flags)

// A watch on the placeholder's file would never tell anything.
int export_inotify_add_watch(int fd, const char* path, std::uint32_t mask) {
  shim::materialize(fd);
  follow(path);
  return real::inotify_add_watch(fd, path, mask);
}
int export_fanotify_mark(int fd, unsigned flags, std::uint64_t mask, int dir, const char* path) {
  shim::materialize(fd);
  if (path == nullptr) shim::materialize(dir);
  follow(path, dir);
  return real::fanotify_mark(fd, flags, mask, dir, path);
}

int export_chdir(const char* path) {
  const int result = real::chdir(path);
  if (result != 0 && errno == ENOENT) shim::names::tell_of_working_directory(AT_FDCWD, path);
  shim::path_filter::forget_working_directory();
  return result;
}
int export_fchdir(int fd) {
  shim::materialize(fd);
  char ours[PATH_MAX];
  if (shim::names::copy_path_of_directory(fd, ours)) return export_chdir(ours);
  const int result = real::fchdir(fd);
  shim::path_filter::forget_working_directory();
  return result;
}

// ---- who we are and what paths mean -----------------------------------------------------------------------------------

// The rights that this process had before say nothing of what it may read now, or of what lies there.
namespace {

// Nothing of ours may run beside such a call: it would fetch with the new rights, or of the new root, what others are served.
// And some want a process to have but one thread. `name`: of a call that changes what names or permissions mean.
template <typename Call>
int change_identity(const char* name, Call&& call) {
  if (!shim::process::is_active() || !shim::process::owns_table()) return call();
  constexpr std::uint64_t k_until_gone_ns = 50'000'000;
  const bool had_threads = shim::process::pause_sidecar();
  const std::uint64_t until = had_threads ? cube::base::monotonic_ns() + k_until_gone_ns : 0;
  auto result = call();
  // The kernel's own threads for io_uring end a little later.
  while (result != 0 && errno == EINVAL && had_threads && cube::base::monotonic_ns() < until) {
    sched_yield();
    result = call();
  }
  if (result == 0 && name != nullptr) shim::process::disable(name);
  shim::process::resume_sidecar();
  return result;
}

}  // namespace

#define CUBE_CHANGES_IDENTITY(name, declaration, ...)                       \
  int export_##name declaration {                                           \
    return change_identity(#name, [&] { return real::name(__VA_ARGS__); }); \
  }
CUBE_CHANGES_IDENTITY(setuid, (uid_t id), id)
CUBE_CHANGES_IDENTITY(seteuid, (uid_t id), id)
CUBE_CHANGES_IDENTITY(setreuid, (uid_t real_id, uid_t effective), real_id, effective)
CUBE_CHANGES_IDENTITY(setresuid, (uid_t real_id, uid_t effective, uid_t saved), real_id, effective, saved)
CUBE_CHANGES_IDENTITY(setgid, (gid_t id), id)
CUBE_CHANGES_IDENTITY(setegid, (gid_t id), id)
CUBE_CHANGES_IDENTITY(setregid, (gid_t real_id, gid_t effective), real_id, effective)
CUBE_CHANGES_IDENTITY(setresgid, (gid_t real_id, gid_t effective, gid_t saved), real_id, effective, saved)
CUBE_CHANGES_IDENTITY(setgroups, (size_t n, const gid_t* groups), n, groups)
CUBE_CHANGES_IDENTITY(initgroups, (const char* user, gid_t group), user, group)
CUBE_CHANGES_IDENTITY(capset, (void* header, const void* data), header, data)
CUBE_CHANGES_IDENTITY(chroot, (const char* path), path)
int export_setns(int fd, int type) {
  shim::materialize(fd);
  return change_identity("setns", [&] { return real::setns(fd, type); });
}

int export_unshare(int flags) {
  // Threads with an fd table of their own cannot share ours.
  if ((flags & CLONE_FILES) != 0) {
    shim::materialize_all();
    shim::let_writers_outlive_us();
  }
  const bool changes_names = (flags & (CLONE_FILES | CLONE_FS | CLONE_NEWNS | CLONE_NEWUSER)) != 0;
  return change_identity(changes_names ? "unshare" : nullptr, [&] { return real::unshare(flags); });
}
// A filter, or the strict mode. Without a program it is only a question whether there is such a thing.
int export_prctl(int option, ...) {
  va_list list;
  va_start(list, option);
  unsigned long a[4];
  for (unsigned long& argument : a) argument = va_arg(list, unsigned long);
  va_end(list);
  if (option == PR_SET_SECCOMP && (a[0] != SECCOMP_MODE_FILTER || a[1] != 0)) shim::process::seal();
  // Allocators call it before our constructor, when dlsym may not be called yet.
  if (!real::prctl.is_there()) {
    return static_cast<int>(shim::to_c(cube::base::sys::raw(SYS_prctl, option, static_cast<long>(a[0]), static_cast<long>(a[1]),
                                                            static_cast<long>(a[2]), static_cast<long>(a[3]))));
  }
  return real::prctl(option, a[0], a[1], a[2], a[3]);
}
// These return the id before, and no error.
int export_setfsuid(uid_t id) {
  const int before = real::setfsuid(id);
  if (id != static_cast<uid_t>(-1) && static_cast<int>(id) != before) shim::process::disable("setfsuid");
  return before;
}
int export_setfsgid(gid_t id) {
  const int before = real::setfsgid(id);
  if (id != static_cast<gid_t>(-1) && static_cast<int>(id) != before) shim::process::disable("setfsgid");
  return before;
}
