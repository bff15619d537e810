// fcntl and the locks.
#include <sys/file.h>

#include <cstdarg>

#include "cache/base/sys.h"
#include "shim/calls/file_calls.h"
#include "shim/calls/locks.h"
#include "shim/calls/new_fds.h"
#include "shim/libc/exports.h"
#include "shim/libc/profiled.h"
#include "shim/process/c_result.h"
#include "shim/process/real_libc.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;
namespace calls = cube::shim::file_calls;
using cube::shim::to_c;

namespace {

// lockf counts from the position of the fd. The position matters only if there is a lock to forget.
shim::locks::Owner owner_of_lockf(int fd, int command, std::int64_t n) {
  using enum shim::locks::Owner;
  if (command != F_ULOCK) return command == F_TEST ? nobody : process;
  const bool is_all = n == 0 && cube::cache::PosixLocks::is_any_noted() &&
                      cube::base::sys::lseek(fd, 0, SEEK_CUR) == 0;
  return is_all ? process_ends_all : process_ends;
}

}  // namespace

#define CUBE_FCNTL(name)                                                                           \
  int export_##name(int fd, int command, ...) {                                                    \
    va_list list;                                                                                  \
    va_start(list, command);                                                                       \
    void* const argument = va_arg(list, void*);                                                    \
    va_end(list);                                                                                  \
    if (shim::locks::is_lock(command)) {                                                           \
      CUBE_PLAIN(int, {                                                                            \
        return shim::locks::made(fd, shim::locks::owner_of(command, argument), [&] {               \
          return shim::by_kernel(real::name(fd, command, argument));                               \
        });                                                                                        \
      });                                                                                          \
      CUBE_PROFILED(lock, .fd = fd);                                                               \
    }                                                                                              \
    if (command == F_SETLEASE)                                                                     \
      shim::locks::before_lock_of_large(fd, shim::locks::Owner::open_file);                        \
    if (const auto answer = calls::fcntl(fd, command, reinterpret_cast<long>(argument)); answer) { \
      const auto result = static_cast<int>(to_c(*answer));                                         \
      return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? shim::copied(fd, result) : result; \
    }                                                                                              \
    const bool makes_fd = command == F_DUPFD || command == F_DUPFD_CLOEXEC;                        \
    if (makes_fd) shim::expect_new_fd();                                                           \
    const int result = real::name(fd, command, argument);                                          \
    return makes_fd ? shim::copied(fd, shim::noted_dup(fd, result, command == F_DUPFD_CLOEXEC))    \
                    : result;                                                                      \
  }
CUBE_FCNTL(fcntl)
CUBE_FCNTL(fcntl64)
CUBE_FCNTL(__fcntl)

int export_flock(int fd, int operation) {
  const auto owner =
      (operation & LOCK_UN) != 0 ? shim::locks::Owner::flock_ends : shim::locks::Owner::flock;
  CUBE_PLAIN(int, {
    return shim::locks::made(fd, owner,
                             [&] { return shim::by_kernel(real::flock(fd, operation)); });
  });
  CUBE_PROFILED(lock, .fd = fd);
}
int export_lockf(int fd, int command, off_t n) {
  CUBE_PLAIN(int, {
    return shim::locks::made(fd, owner_of_lockf(fd, command, n),
                             [&] { return shim::by_kernel(real::lockf(fd, command, n)); });
  });
  CUBE_PROFILED(lock, .fd = fd);
}
int export_lockf64(int fd, int command, off_t n) {
  CUBE_PLAIN(int, {
    return shim::locks::made(fd, owner_of_lockf(fd, command, n),
                             [&] { return shim::by_kernel(real::lockf64(fd, command, n)); });
  });
  CUBE_PROFILED(lock, .fd = fd);
}
