// Calls on a path that may name an fd (/proc/self/fd) or a link, calls for attributes by path, and
// calls that change the working directory.
#include <linux/seccomp.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/prctl.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <utility>

#include "cache/base/clock.h"
#include "cache/base/memory/off_stack.h"
#include "shim/calls/file_calls.h"
#include "shim/calls/name/kernel_answer.h"
#include "shim/calls/name/name_change.h"
#include "shim/calls/name/path_calls.h"
#include "shim/calls/name/unmounted_paths.h"
#include "shim/fd/materialize.h"
#include "shim/libc/answers.h"
#include "shim/path/fd_path.h"
#include "shim/process/user_pointer.h"
#include "shim/threads/own_threads.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;
using cube::shim::refuse;

namespace {

void follow(const char* path, int dir = AT_FDCWD) {
  shim::placeholder::unpark_if(dir);
  if (!shim::process::is_active()) return;
  // An empty path means the file of the fd (AT_EMPTY_PATH).
  if (dir >= 0 && shim::path_filter::is_readable_pointer(path) && *path == '\0')
    shim::materialize(dir, "linkat");
  shim::materialize_named(path, dir);
}

// Returns a count of bytes, or -errno. Returns nothing if libc must ask the kernel.
std::optional<long> known_link(int dir, const char* path, char* to, size_t n) {
  if (const auto answer = shim::readlink_from_record(dir, path, to, n)) return answer;
  return shim::unmounted_paths::readlink(dir, path, to, n);
}

}  // namespace

ssize_t export_readlink(const char* path, char* to, size_t n) {
  follow(path);
  if (const auto answer = known_link(AT_FDCWD, path, to, n); answer) return shim::to_c(*answer);
  return shim::told_link(real::readlink(path, to, n), AT_FDCWD, path, to, n);
}
ssize_t export___readlink_chk(const char* path, char* to, size_t n, size_t room) {
  follow(path);
  if (const auto answer = n <= room ? known_link(AT_FDCWD, path, to, n) : std::nullopt; answer)
    return shim::to_c(*answer);
  return shim::told_link(real::__readlink_chk(path, to, n, room), AT_FDCWD, path, to, n);
}
ssize_t export_readlinkat(int dir, const char* path, char* to, size_t n) {
  follow(path, dir);
  if (const auto answer = known_link(dir, path, to, n); answer) return shim::to_c(*answer);
  if (shim::unmounted_paths::is_below_served(dir, path))
    return refuse(shim::unmounted_paths::error_of(dir, path, true));
  return shim::told_link(real::readlinkat(dir, path, to, n), dir, path, to, n);
}
ssize_t export___readlinkat_chk(int dir, const char* path, char* to, size_t n, size_t room) {
  follow(path, dir);
  if (const auto answer = n <= room ? known_link(dir, path, to, n) : std::nullopt; answer)
    return shim::to_c(*answer);
  if (n <= room && shim::unmounted_paths::is_below_served(dir, path))
    return refuse(shim::unmounted_paths::error_of(dir, path, true));
  return shim::told_link(real::__readlinkat_chk(dir, path, to, n, room), dir, path, to, n);
}
char* export_realpath(const char* path, char* to) {
  follow(path);
  char ours[PATH_MAX];
  if (shim::realpath_from_record(path, ours) || shim::unmounted_paths::realpath(path, ours))
    return to != nullptr ? std::strcpy(to, ours) : ::strdup(ours);
  char* const found = real::realpath(path, to);
  shim::told(found == nullptr ? -1 : 0, AT_FDCWD, path, false);
  return found;
}
char* export___realpath_chk(const char* path, char* to, size_t room) {
  if (room >= PATH_MAX) return export_realpath(path, to);
  follow(path);
  char* const found = real::__realpath_chk(path, to, room);
  shim::told(found == nullptr ? -1 : 0, AT_FDCWD, path, false);
  return found;
}
char* export_canonicalize_file_name(const char* path) { return export_realpath(path, nullptr); }
namespace {

template <typename FileSystem>
int give(const FileSystem& ours, FileSystem* to) {
  if (shim::is_bad_pointer(to, sizeof *to)) return refuse(EFAULT);
  *to = ours;
  return 0;
}

}  // namespace

// For our paths, reports a synthetic file system.
#define CUBE_FILE_SYSTEM(name, type)                                                              \
  int export_##name(const char* path, struct ::type* s) {                                         \
    if (shim::path_filter::is_unmapped(path)) return real::name(path, s);                         \
    follow(path);                                                                                 \
    if (struct ::type ours; shim::unmounted_paths::type(AT_FDCWD, path, ours))                    \
      return give(ours, s);                                                                       \
    return shim::told(real::name(path, s), AT_FDCWD, path, false);                                \
  }                                                                                               \
  int export_f##name(int fd, struct ::type* s) {                                                  \
    shim::materialize(fd);                                                                        \
    if (struct ::type ours; shim::unmounted_paths::type(fd, nullptr, ours)) return give(ours, s); \
    return real::f##name(fd, s);                                                                  \
  }
CUBE_FILE_SYSTEM(statfs, statfs)
CUBE_FILE_SYSTEM(statfs64, statfs)
CUBE_FILE_SYSTEM(statvfs, statvfs)
CUBE_FILE_SYSTEM(statvfs64, statvfs)
long export_pathconf(const char* path, int name) {
  if (shim::path_filter::is_unmapped(path)) return real::pathconf(path, name);
  follow(path);
  // A result of -1 with an unchanged errno means that there is no limit.
  const int before = std::exchange(errno, 0);
  const long result = shim::told(real::pathconf(path, name), AT_FDCWD, path, false);
  if (errno == 0) errno = before;
  return result;
}
// Our paths have no attributes: lookups fail, and the list is empty.
#define CUBE_XATTR(name, no_follow, if_ours, declaration, ...)                        \
  ssize_t export_##name declaration {                                                 \
    if (shim::path_filter::is_unmapped(path)) return real::name(__VA_ARGS__);         \
    follow(path);                                                                     \
    cube::cache::FileStat stat;                                                       \
    if (shim::unmounted_paths::stat(AT_FDCWD, path, no_follow, stat)) return if_ours; \
    return shim::told(real::name(__VA_ARGS__), AT_FDCWD, path, no_follow);            \
  }
CUBE_XATTR(getxattr, false, refuse(ENOTSUP),
           (const char* path, const char* name, void* value, size_t n), path, name, value, n)
CUBE_XATTR(lgetxattr, true, refuse(ENOTSUP),
           (const char* path, const char* name, void* value, size_t n), path, name, value, n)
CUBE_XATTR(listxattr, false, 0, (const char* path, char* list, size_t n), path, list, n)
CUBE_XATTR(llistxattr, true, 0, (const char* path, char* list, size_t n), path, list, n)

int export_name_to_handle_at(int dir, const char* path, struct ::file_handle* handle, int* mount,
                             int flags) {
  if (shim::path_filter::is_unmapped(path))
    return real::name_to_handle_at(dir, path, handle, mount, flags);
  follow(path, dir);
  return shim::told(real::name_to_handle_at(dir, path, handle, mount, flags),
                    {.dir = dir, .path = path, .no_follow = (flags & AT_SYMLINK_FOLLOW) == 0});
}

// Materializes the file that the path names, because a watch on the placeholder's file would never
// report anything.
int export_inotify_add_watch(int fd, const char* path, std::uint32_t mask) {
  shim::materialize(fd);
  if (!shim::path_filter::is_unmapped(path)) follow(path);
  using Wants = shim::PathCall::Wants;
  return shim::told(real::inotify_add_watch(fd, path, mask),
                    {.path = path,
                     .wants = (mask & IN_ONLYDIR) != 0 ? Wants::directory : Wants::name,
                     .no_follow = (mask & IN_DONT_FOLLOW) != 0});
}
int export_fanotify_mark(int fd, unsigned flags, std::uint64_t mask, int dir, const char* path) {
  shim::materialize(fd);
  if (path == nullptr) shim::materialize(dir);
  if (!shim::path_filter::is_unmapped(path)) follow(path, dir);
  return shim::told(real::fanotify_mark(fd, flags, mask, dir, path),
                    {.dir = dir, .path = path, .no_follow = (flags & FAN_MARK_DONT_FOLLOW) != 0});
}

int export_chdir(const char* path) {
  const int result =
      shim::told(real::chdir(path), {.path = path, .wants = shim::PathCall::Wants::directory});
  if (result != 0 && errno == ENOENT)
    shim::unmounted_paths::tell_of_working_directory(AT_FDCWD, path);
  shim::path_filter::forget_working_directory();
  return result;
}
int export_fchdir(int fd) {
  shim::materialize(fd);
  char ours[PATH_MAX];
  if (shim::unmounted_paths::copy_path_of_directory(fd, ours)) return export_chdir(ours);
  const int result = real::fchdir(fd);
  shim::path_filter::forget_working_directory();
  return result;
}
