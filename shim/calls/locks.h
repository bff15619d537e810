// Locks on served files (flock, lockf, fcntl). The kernel keeps the locks on the origin's own file,
// which replaces the placeholder. Reads are still answered from memory, so a program that locks its
// files still reads the origin only once. While the program waited for the lock, another process
// may have written to the file. So the file is revalidated after each lock. If the file has
// changed, the kernel answers all later reads of it. A large file already has an fd of the origin's
// own file. A lock that belongs to the open file must end when the program closes its last fd of
// the file. So the library must not keep such a file open (cache/fill/large/large_file.h).
// Thread-safe and async-signal-safe.
#pragma once

#include <fcntl.h>

#include "cache/base/memory/can_read.h"
#include "cache/region/posix_locks.h"
#include "shim/fd/materialize.h"
#include "shim/process/c_result.h"
#include "shim/process/process.h"
#include "shim/process/user_pointer.h"

namespace cube::shim::locks {

inline bool is_lock(int command) {
  switch (command) {
    case F_GETLK:
    case F_SETLK:
    case F_SETLKW:
    case F_OFD_GETLK:
    case F_OFD_SETLK:
    case F_OFD_SETLKW: return true;
    default: return false;
  }
}

// The owner of a lock, which determines when the kernel ends the lock. The values `..._ends` are
// for calls that unlock; `process_ends_all` unlocks the whole file.
enum class Owner : std::uint8_t {
  process,
  process_ends,
  process_ends_all,
  flock,
  flock_ends,
  open_file,
  nobody
};

inline Owner owner_of(int command, const void* argument) {
  if (command == F_GETLK || command == F_OFD_GETLK) return Owner::nobody;
  if (command == F_OFD_SETLK || command == F_OFD_SETLKW) return Owner::open_file;
  const auto* const lock = static_cast<const struct ::flock*>(argument);
  const bool ends =
      !is_bad_pointer(lock, sizeof *lock) && base::can_read_around(address_of(lock)) &&
      base::can_read_around(address_of(lock) + sizeof *lock - 1) && lock->l_type == F_UNLCK;
  if (!ends) return Owner::process;
  const bool is_all = lock->l_whence == SEEK_SET && lock->l_start == 0 && lock->l_len == 0;
  return is_all ? Owner::process_ends_all : Owner::process_ends;
}

inline bool ends_of_process(Owner owner) {
  return owner == Owner::process_ends || owner == Owner::process_ends_all;
}
inline bool releases(Owner owner) { return ends_of_process(owner) || owner == Owner::flock_ends; }

void before_lock_of_large(int fd, Owner owner);
void after_lock_of_large(int fd, Owner owner);

// Gives the fd a kernel file that can be locked, then makes libc's call. Returns the result of the
// call.
template <typename Call>
int made(int fd, Owner owner, Call&& call) {
  placeholder::unpark_if(fd);
  const bool is_served = g_fds.kind(fd) != RowKind::none;
  const auto take = [&] {
    // A lock of a child of vfork is not a lock of this process.
    if (!process::owns_table()) return call();
    if (owner == Owner::process) return cache::PosixLocks::take(fd, call);
    if (owner == Owner::process_ends_all) cache::PosixLocks::forget_and_mark(fd);
    const int result = call();
    if (ends_of_process(owner) && result == 0) {
      const KeepErrno keep;
      cache::PosixLocks::close_kept(cache::PosixLocks::kept_mark(fd));
    }
    return result;
  };
  // A file outside the prefixes may be a hard link to a file below a prefix.
  if (!is_served) return take();
  if (show_origin(fd) != 0) {
    // The kernel has not opened this file yet, so there is no lock to release.
    if (releases(owner)) return 0;
    errno = ENOLCK;
    return -1;
  }
  before_lock_of_large(fd, owner);
  const int result = take();
  if (result == 0) {
    const KeepErrno keep;
    materialize_if_changed(fd);
    after_lock_of_large(fd, owner);
  }
  return result;
}

}  // namespace cube::shim::locks
