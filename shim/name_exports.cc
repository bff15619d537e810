// Calls that change names or what files hold: made by libc, and what the cache knew of them is dropped at once. Also the
// calls that follow /proc/self/fd, and those after which paths or permissions mean something else.
#include "shim/exports.h"
#include "shim/file_calls.h"
#include "shim/materialize.h"
#include "shim/path_calls.h"
#include "shim/real_libc.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;
using cube::shim::NameChange;

#define CUBE_CHANGES_ONE(name, dir, path, follows, declaration, ...) \
  int export_##name declaration {                                    \
    NameChange change(dir, path, follows);                           \
    const int result = real::name(__VA_ARGS__);                      \
    if (result == 0) change.commit();                                \
    return result;                                                   \
  }
CUBE_CHANGES_ONE(truncate, AT_FDCWD, path, true, (const char* path, off_t n), path, n)
CUBE_CHANGES_ONE(truncate64, AT_FDCWD, path, true, (const char* path, off_t n), path, n)
CUBE_CHANGES_ONE(unlink, AT_FDCWD, path, false, (const char* path), path)
CUBE_CHANGES_ONE(unlinkat, dir, path, false, (int dir, const char* path, int flags), dir, path, flags)
CUBE_CHANGES_ONE(remove, AT_FDCWD, path, false, (const char* path), path)
CUBE_CHANGES_ONE(utime, AT_FDCWD, path, true, (const char* path, const struct ::utimbuf* times), path, times)
CUBE_CHANGES_ONE(utimes, AT_FDCWD, path, true, (const char* path, const struct ::timeval* times), path, times)
CUBE_CHANGES_ONE(lutimes, AT_FDCWD, path, false, (const char* path, const struct ::timeval* times), path, times)
CUBE_CHANGES_ONE(futimesat, dir, path, true, (int dir, const char* path, const struct ::timeval* times), dir, path, times)
CUBE_CHANGES_ONE(utimensat, dir, path, (flags & AT_SYMLINK_NOFOLLOW) == 0,
                 (int dir, const char* path, const struct ::timespec* times, int flags), dir, path, times, flags)
CUBE_CHANGES_ONE(chmod, AT_FDCWD, path, true, (const char* path, mode_t mode), path, mode)
CUBE_CHANGES_ONE(fchmodat, dir, path, (flags & AT_SYMLINK_NOFOLLOW) == 0, (int dir, const char* path, mode_t mode, int flags),
                 dir, path, mode, flags)
CUBE_CHANGES_ONE(chown, AT_FDCWD, path, true, (const char* path, uid_t user, gid_t group), path, user, group)
CUBE_CHANGES_ONE(lchown, AT_FDCWD, path, false, (const char* path, uid_t user, gid_t group), path, user, group)
CUBE_CHANGES_ONE(fchownat, dir, path, (flags & AT_SYMLINK_NOFOLLOW) == 0,
                 (int dir, const char* path, uid_t user, gid_t group, int flags), dir, path, user, group, flags)
// A new name changes the link count of the old one.
CUBE_CHANGES_ONE(link, AT_FDCWD, from, false, (const char* from, const char* to), from, to)
CUBE_CHANGES_ONE(linkat, from_dir, from, (flags & AT_SYMLINK_FOLLOW) != 0,
                 (int from_dir, const char* from, int to_dir, const char* to, int flags), from_dir, from, to_dir, to, flags)

#define CUBE_RENAMES(name, from_dir, to_dir, declaration, ...) \
  int export_##name declaration {                              \
    NameChange source(from_dir, from), target(to_dir, to);     \
    const int result = real::name(__VA_ARGS__);                \
    if (result == 0) {                                         \
      source.commit();                                         \
      target.commit();                                         \
    }                                                          \
    return result;                                             \
  }
CUBE_RENAMES(rename, AT_FDCWD, AT_FDCWD, (const char* from, const char* to), from, to)
CUBE_RENAMES(renameat, from_dir, to_dir, (int from_dir, const char* from, int to_dir, const char* to), from_dir, from, to_dir, to)
CUBE_RENAMES(renameat2, from_dir, to_dir, (int from_dir, const char* from, int to_dir, const char* to, unsigned flags), from_dir,
             from, to_dir, to, flags)

// ---- names of fds: the kernel looks at the number itself --------------------------------------------------------------

namespace {

void follow(const char* path) {
  if (!shim::process::is_active()) return;
  if (const int fd = shim::path_filter::named_fd(path); fd >= 0) shim::materialize(fd);
}
// readlink and stat on an fd by AT_EMPTY_PATH.
void follow_at(int dir, const char* path) {
  if (path == nullptr) return;
  if (*path == '\0') shim::materialize(dir);
  follow(path);
  // Relative to an open /proc/self/fd, perhaps.
  if (*path < '0' || *path > '9') return;
  int fd = 0;
  for (; *path >= '0' && *path <= '9' && fd < shim::FdTable::k_capacity; ++path) fd = fd * 10 + (*path - '0');
  if (*path == '\0') shim::materialize(fd);
}

}  // namespace

ssize_t export_readlink(const char* path, char* to, size_t n) {
  follow(path);
  return real::readlink(path, to, n);
}
ssize_t export___readlink_chk(const char* path, char* to, size_t n, size_t room) {
  follow(path);
  return real::__readlink_chk(path, to, n, room);
}
ssize_t export_readlinkat(int dir, const char* path, char* to, size_t n) {
  follow_at(dir, path);
  return real::readlinkat(dir, path, to, n);
}
ssize_t export___readlinkat_chk(int dir, const char* path, char* to, size_t n, size_t room) {
  follow_at(dir, path);
  return real::__readlinkat_chk(dir, path, to, n, room);
}
char* export_realpath(const char* path, char* to) {
  follow(path);
  return real::realpath(path, to);
}
char* export___realpath_chk(const char* path, char* to, size_t room) {
  follow(path);
  return real::__realpath_chk(path, to, room);
}
char* export_canonicalize_file_name(const char* path) {
  follow(path);
  return real::canonicalize_file_name(path);
}
int export_chdir(const char* path) {
  const int result = real::chdir(path);
  shim::path_filter::forget_working_directory();
  return result;
}
int export_fchdir(int fd) {
  shim::materialize(fd);
  const int result = real::fchdir(fd);
  shim::path_filter::forget_working_directory();
  return result;
}

// ---- who we are and what paths mean -----------------------------------------------------------------------------------

// What this process was allowed to read before says nothing of what it may read now, or of what lies there.
#define CUBE_CHANGES_IDENTITY(name, declaration, ...)                              \
  int export_##name declaration {                                                  \
    const int result = real::name(__VA_ARGS__);                                    \
    if (result == 0 && shim::process::owns_table()) shim::process::disable(#name); \
    return result;                                                                 \
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
CUBE_CHANGES_IDENTITY(chroot, (const char* path), path)
CUBE_CHANGES_IDENTITY(setns, (int fd, int type), fd, type)

int export_unshare(int flags) {
  // Threads with an fd table of their own cannot share ours.
  if ((flags & CLONE_FILES) != 0) shim::materialize_all();
  const int result = real::unshare(flags);
  if (result == 0 && (flags & (CLONE_FILES | CLONE_FS | CLONE_NEWNS | CLONE_NEWUSER)) != 0) shim::process::disable("unshare");
  return result;
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
