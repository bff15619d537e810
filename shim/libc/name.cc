// Calls that change names or the content of files. libc makes the call, and the cache then drops
// its entries for these files.
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstring>

#include "cache/base/clock.h"
#include "cache/base/memory/can_read.h"
#include "cache/base/memory/off_stack.h"
#include "shim/calls/file_calls.h"
#include "shim/calls/name/name_change.h"
#include "shim/calls/name/unmounted_paths.h"
#include "shim/fd/materialize.h"
#include "shim/libc/answers.h"
#include "shim/process/user_pointer.h"
#include "shim/threads/own_threads.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;
using cube::shim::NameChange;
using cube::shim::refuse;

namespace {

// Makes a call with two paths, and reports both changes. The changes are kept off the stack,
// because they would not fit on the smallest stacks.
template <typename Call>
int change_both(int from_dir, const char* from, int to_dir, const char* to, unsigned flags,
                Call&& call) {
  static_assert(std::is_trivially_destructible_v<NameChange>);
  struct NameRoom {
    alignas(NameChange) std::byte bytes[sizeof(NameChange)];
  };
  return cube::base::use_off_stack<NameRoom>([&](NameRoom& first) {
    return cube::base::use_off_stack<NameRoom>([&](NameRoom& second) {
      auto& source = *new (first.bytes) NameChange(from_dir, from);
      auto& target = *new (second.bytes) NameChange(to_dir, to);
      const int result = call();
      if (result == 0) {
        source.moves();
        // A rename of a file to itself, or to another name of the file, removes nothing.
        if (source.is_same_file(target)) target.moves();
        target.leads_to(source);
        if ((flags & RENAME_EXCHANGE) != 0) {
          target.moves();
          source.leads_to(target);
        }
        source.commit();
        target.commit();
        shim::told_of_new_name(result, to_dir, to);
      } else {
        shim::told_of_source(result, from_dir, from, /*no_follow=*/true);
        shim::told_of_target(result, to_dir, to, flags);
      }
      return result;
    });
  });
}

}  // namespace

#define CUBE_CHANGES(name, passage, dir, path, of, declaration, ...)          \
  int export_##name declaration {                                             \
    shim::placeholder::unpark_if(dir);                                        \
    if (shim::path_filter::is_unmapped(path)) return real::name(__VA_ARGS__); \
    if (shim::unmounted_paths::is_read_only(dir, path)) return refuse();      \
    NameChange change(dir, path, of);                                         \
    const shim::Passage before = passage;                                     \
    const int result = real::name(__VA_ARGS__);                               \
    if (result == 0) change.commit(before);                                   \
    return static_cast<int>(shim::told_of_change(result, dir, path, of));     \
  }
#define CUBE_CHANGES_ONE(name, ...) CUBE_CHANGES(name, shim::Passage(), __VA_ARGS__)
#define CUBE_CHANGES_RIGHTS(name, dir, ...) \
  CUBE_CHANGES(name, shim::passage_of(dir, path), dir, __VA_ARGS__)
#define CUBE_CHANGES_LIST(call, ...) \
  CUBE_CHANGES(call, shim::passage_by_attribute(AT_FDCWD, path, name), __VA_ARGS__)
CUBE_CHANGES_ONE(truncate, AT_FDCWD, path, NameChange::Of::file, (const char* path, off_t n), path,
                 n)
CUBE_CHANGES_ONE(truncate64, AT_FDCWD, path, NameChange::Of::file, (const char* path, off_t n),
                 path, n)
CUBE_CHANGES_ONE(unlink, AT_FDCWD, path, NameChange::Of::name, (const char* path), path)
CUBE_CHANGES_ONE(unlinkat, dir, path, NameChange::Of::name, (int dir, const char* path, int flags),
                 dir, path, flags)
CUBE_CHANGES_ONE(remove, AT_FDCWD, path, NameChange::Of::name, (const char* path), path)
CUBE_CHANGES_ONE(utime, AT_FDCWD, path, NameChange::Of::file,
                 (const char* path, const struct ::utimbuf* times), path, times)
CUBE_CHANGES_ONE(utimes, AT_FDCWD, path, NameChange::Of::file,
                 (const char* path, const struct ::timeval* times), path, times)
CUBE_CHANGES_ONE(lutimes, AT_FDCWD, path, NameChange::Of::file_or_link,
                 (const char* path, const struct ::timeval* times), path, times)
CUBE_CHANGES_ONE(futimesat, dir, path, NameChange::Of::file,
                 (int dir, const char* path, const struct ::timeval* times), dir, path, times)
CUBE_CHANGES_ONE(utimensat, dir, path, NameChange::file_by((flags & AT_SYMLINK_NOFOLLOW) == 0),
                 (int dir, const char* path, const struct ::timespec* times, int flags), dir, path,
                 times, flags)
CUBE_CHANGES_RIGHTS(chmod, AT_FDCWD, path, NameChange::Of::file, (const char* path, mode_t mode),
                    path, mode)
CUBE_CHANGES_RIGHTS(lchmod, AT_FDCWD, path, NameChange::Of::file_or_link,
                    (const char* path, mode_t mode), path, mode)
CUBE_CHANGES_RIGHTS(fchmodat, dir, path, NameChange::file_by((flags & AT_SYMLINK_NOFOLLOW) == 0),
                    (int dir, const char* path, mode_t mode, int flags), dir, path, mode, flags)
CUBE_CHANGES_RIGHTS(chown, AT_FDCWD, path, NameChange::Of::file,
                    (const char* path, uid_t user, gid_t group), path, user, group)
CUBE_CHANGES_RIGHTS(lchown, AT_FDCWD, path, NameChange::Of::file_or_link,
                    (const char* path, uid_t user, gid_t group), path, user, group)
CUBE_CHANGES_RIGHTS(fchownat, dir, path, NameChange::file_by((flags & AT_SYMLINK_NOFOLLOW) == 0),
                    (int dir, const char* path, uid_t user, gid_t group, int flags), dir, path,
                    user, group, flags)
CUBE_CHANGES_LIST(setxattr, AT_FDCWD, path, NameChange::Of::file,
                  (const char* path, const char* name, const void* value, size_t n, int flags),
                  path, name, value, n, flags)
CUBE_CHANGES_LIST(lsetxattr, AT_FDCWD, path, NameChange::Of::file_or_link,
                  (const char* path, const char* name, const void* value, size_t n, int flags),
                  path, name, value, n, flags)
CUBE_CHANGES_LIST(removexattr, AT_FDCWD, path, NameChange::Of::file,
                  (const char* path, const char* name), path, name)
CUBE_CHANGES_LIST(lremovexattr, AT_FDCWD, path, NameChange::Of::file_or_link,
                  (const char* path, const char* name), path, name)
// A new link changes the link count of the file, which the old name shows, too.
#define CUBE_LINKS(name, from_dir, to_dir, follows, declaration, ...)                  \
  int export_##name declaration {                                                      \
    for (const int dir : {from_dir, to_dir}) shim::placeholder::unpark_if(dir);        \
    if (shim::path_filter::is_unmapped(from) || shim::path_filter::is_unmapped(to))    \
      return real::name(__VA_ARGS__);                                                  \
    if (const int error = shim::unmounted_paths::error_of_new(to_dir, to); error != 0) \
      return refuse(error);                                                            \
    if (shim::unmounted_paths::is_read_only(from_dir, from)) return refuse();          \
    NameChange change(from_dir, from, NameChange::file_by(follows));                   \
    const int result = real::name(__VA_ARGS__);                                        \
    if (result == 0) change.commit();                                                  \
    shim::told_of_source(result, from_dir, from, !(follows));                          \
    return static_cast<int>(shim::told_of_new_name(result, to_dir, to));               \
  }
CUBE_LINKS(link, AT_FDCWD, AT_FDCWD, false, (const char* from, const char* to), from, to)
CUBE_LINKS(linkat, from_dir, to_dir, (flags & AT_SYMLINK_FOLLOW) != 0,
           (int from_dir, const char* from, int to_dir, const char* to, int flags), from_dir, from,
           to_dir, to, flags)

// Makes a call that makes a new name. No name can be made below our paths.
#define CUBE_MAKES_BY(now_ns, name, dir, declaration, ...)                            \
  int export_##name declaration {                                                     \
    shim::placeholder::unpark_if(dir);                                                \
    if (const int error = shim::unmounted_paths::error_of_new(dir, path); error != 0) \
      return refuse(error);                                                           \
    const std::uint64_t before_ns = now_ns;                                           \
    const long result = real::name(__VA_ARGS__);                                      \
    return static_cast<int>(shim::told_of_new_file(result, dir, path, before_ns));    \
  }
#define CUBE_MAKES(...) CUBE_MAKES_BY(0, __VA_ARGS__)
#define CUBE_MAKES_FILE(...) CUBE_MAKES_BY(cube::base::boot_ns(), __VA_ARGS__)
CUBE_MAKES(mkdir, AT_FDCWD, (const char* path, mode_t mode), path, mode)
CUBE_MAKES(mkdirat, dir, (int dir, const char* path, mode_t mode), dir, path, mode)
CUBE_MAKES(symlink, AT_FDCWD, (const char* target, const char* path), target, path)
CUBE_MAKES(symlinkat, dir, (const char* target, int dir, const char* path), target, dir, path)
CUBE_MAKES_FILE(mknod, AT_FDCWD, (const char* path, mode_t mode, dev_t device), path, mode, device)
CUBE_MAKES_FILE(mknodat, dir, (int dir, const char* path, mode_t mode, dev_t device), dir, path,
                mode, device)
CUBE_MAKES_FILE(__xmknod, AT_FDCWD, (int version, const char* path, mode_t mode, dev_t* device),
                version, path, mode, device)
CUBE_MAKES_FILE(__xmknodat, dir,
                (int version, int dir, const char* path, mode_t mode, dev_t* device), version, dir,
                path, mode, device)
CUBE_MAKES(mkfifo, AT_FDCWD, (const char* path, mode_t mode), path, mode)
CUBE_MAKES(mkfifoat, dir, (int dir, const char* path, mode_t mode), dir, path, mode)
char* export_mkdtemp(char* pattern) {
  if (shim::unmounted_paths::is_read_only(AT_FDCWD, pattern)) {
    errno = EROFS;
    return nullptr;
  }
  char* const made = real::mkdtemp(pattern);
  shim::told_of_new_name(made != nullptr ? 0 : -1, AT_FDCWD, pattern);
  return made;
}
CUBE_CHANGES_ONE(rmdir, AT_FDCWD, path, NameChange::Of::name, (const char* path), path)

// After a mount, another tree lies below the mount point.
CUBE_CHANGES_ONE(mount, AT_FDCWD, target, NameChange::Of::mount_point,
                 (const char* source, const char* target, const char* type, unsigned long flags,
                  const void* data),
                 source, target, type, flags, data)
CUBE_CHANGES_ONE(umount, AT_FDCWD, target, NameChange::Of::mount_point, (const char* target),
                 target)
CUBE_CHANGES_ONE(umount2, AT_FDCWD, target, NameChange::Of::mount_point,
                 (const char* target, int flags), target, flags)

#define CUBE_RENAMES(name, from_dir, to_dir, how, declaration, ...)                               \
  int export_##name declaration {                                                                 \
    for (const int dir : {from_dir, to_dir}) shim::placeholder::unpark_if(dir);                   \
    if (shim::path_filter::is_unmapped(from) || shim::path_filter::is_unmapped(to))               \
      return real::name(__VA_ARGS__);                                                             \
    if (shim::unmounted_paths::is_read_only(from_dir, from) ||                                    \
        shim::unmounted_paths::is_read_only(to_dir, to))                                          \
      return refuse();                                                                            \
    return change_both(from_dir, from, to_dir, to, how, [&] { return real::name(__VA_ARGS__); }); \
  }
CUBE_RENAMES(rename, AT_FDCWD, AT_FDCWD, 0, (const char* from, const char* to), from, to)
CUBE_RENAMES(renameat, from_dir, to_dir, 0,
             (int from_dir, const char* from, int to_dir, const char* to), from_dir, from, to_dir,
             to)
CUBE_RENAMES(renameat2, from_dir, to_dir, flags,
             (int from_dir, const char* from, int to_dir, const char* to, unsigned flags), from_dir,
             from, to_dir, to, flags)
