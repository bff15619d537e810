// A program built for an old libc makes newer calls like Rust and Go programs: through a symbol if
// any library has it (ours exports all names under each libc), otherwise by call number.
#include "tests/libc/newer_calls.h"

#include <dlfcn.h>
#include <fts.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>

// The functions are hidden, so that dlsym finds only those of other libraries.
#define CUBE_NEWER_CALL(result, name, parameters, arguments, qualifier, ...)          \
  extern "C" __attribute__((visibility("hidden"))) result name parameters qualifier { \
    if (void* const symbol = dlsym(RTLD_DEFAULT, #name); symbol != nullptr)           \
      return reinterpret_cast<result(*) parameters>(symbol) arguments;                \
    return static_cast<result>(syscall(__VA_ARGS__));                                 \
  }

#if !__GLIBC_PREREQ(2, 26)
#define CUBE_NEWER_TRANSFER(name, number)                                              \
  CUBE_NEWER_CALL(ssize_t, name,                                                       \
                  (int fd, const struct iovec* parts, int count, off_t at, int flags), \
                  (fd, parts, count, at, flags), , number, fd, parts, count, at, 0L, flags)
CUBE_NEWER_TRANSFER(preadv2, SYS_preadv2)
CUBE_NEWER_TRANSFER(preadv64v2, SYS_preadv2)
CUBE_NEWER_TRANSFER(pwritev2, SYS_pwritev2)
CUBE_NEWER_TRANSFER(pwritev64v2, SYS_pwritev2)
#endif
#if !__GLIBC_PREREQ(2, 27)
CUBE_NEWER_CALL(int, memfd_create, (const char* name, unsigned flags), (name, flags), noexcept,
                SYS_memfd_create, name, flags)
CUBE_NEWER_CALL(ssize_t, copy_file_range,
                (int from, off_t* from_at, int to, off_t* to_at, size_t n, unsigned flags),
                (from, from_at, to, to_at, n, flags), , SYS_copy_file_range, from, from_at, to,
                to_at, n, flags)
CUBE_NEWER_CALL(int, mlock2, (const void* at, size_t n, unsigned flags), (at, n, flags), noexcept,
                SYS_mlock2, at, n, flags)
#endif
#if !__GLIBC_PREREQ(2, 28)
CUBE_NEWER_CALL(int, statx, (int dir, const char* path, int flags, unsigned mask, struct statx* x),
                (dir, path, flags, mask, x), noexcept, SYS_statx, dir, path, flags, mask, x)
CUBE_NEWER_CALL(int, renameat2,
                (int from_dir, const char* from, int to_dir, const char* to, unsigned flags),
                (from_dir, from, to_dir, to, flags), noexcept, SYS_renameat2, from_dir, from,
                to_dir, to, flags)
#endif
#if !__GLIBC_PREREQ(2, 29)
// No system call has the same effect.
extern "C" __attribute__((visibility("hidden"))) int posix_spawn_file_actions_addchdir_np(
    posix_spawn_file_actions_t*, const char*) noexcept {
  return ENOSYS;
}
extern "C" __attribute__((visibility("hidden"))) int posix_spawn_file_actions_addfchdir_np(
    posix_spawn_file_actions_t*, int) noexcept {
  return ENOSYS;
}
#endif
#if !__GLIBC_PREREQ(2, 30)
CUBE_NEWER_CALL(ssize_t, getdents64, (int fd, void* to, size_t n), (fd, to, n), noexcept,
                SYS_getdents64, fd, to, n)
#endif
#if !__GLIBC_PREREQ(2, 34)
CUBE_NEWER_CALL(int, close_range, (unsigned first, unsigned last, int flags), (first, last, flags),
                noexcept, SYS_close_range, first, last, flags)
CUBE_NEWER_CALL(int, execveat,
                (int dir, const char* path, char* const arguments[], char* const environment[],
                 int flags),
                (dir, path, arguments, environment, flags), noexcept, SYS_execveat, dir, path,
                arguments, environment, flags)
extern "C" __attribute__((visibility("hidden"))) void closefrom(int first) noexcept {
  if (void* const symbol = dlsym(RTLD_DEFAULT, "closefrom"); symbol != nullptr) {
    reinterpret_cast<void (*)(int)>(symbol)(first);
  } else {
    syscall(SYS_close_range, first, ~0U, 0);
  }
}
#endif
#if !__GLIBC_PREREQ(2, 36)
CUBE_NEWER_CALL(int, pidfd_open, (pid_t process, unsigned flags), (process, flags), noexcept,
                SYS_pidfd_open, process, flags)
CUBE_NEWER_CALL(int, pidfd_getfd, (int process, int fd, unsigned flags), (process, fd, flags),
                noexcept, SYS_pidfd_getfd, process, fd, flags)
CUBE_NEWER_CALL(int, pidfd_send_signal, (int process, int signal, siginfo_t* info, unsigned flags),
                (process, signal, info, flags), noexcept, SYS_pidfd_send_signal, process, signal,
                info, flags)
#endif

#if !__GLIBC_PREREQ(2, 34)
// A raw call is not possible here, because libc before 2.25 caches the process id.
extern "C" __attribute__((visibility("hidden"))) pid_t _Fork() noexcept {
  void* const symbol = dlsym(RTLD_DEFAULT, "_Fork");
  return symbol != nullptr ? reinterpret_cast<pid_t (*)()>(symbol)() : fork();
}
#endif

#if !__GLIBC_PREREQ(2, 32)
// The tests then print the error's number.
extern "C" __attribute__((visibility("hidden"))) const char* strerrorname_np(int) noexcept {
  return nullptr;
}
#endif

// For tests that look up a function by name. With such an old libc, stat and its relatives are
// linked into the program itself, and call __xstat and its relatives.
extern "C" __attribute__((visibility("hidden"))) void* newer_call(const char* name) {
  using Stat = int (*)(const char*, struct stat*);
  const struct {
    const char* name;
    void* call;
  } calls[] = {
      {"_Fork", reinterpret_cast<void*>(&_Fork)},
      {"fcntl64", reinterpret_cast<void*>(&fcntl)},
      {"fstat", reinterpret_cast<void*>(&fstat)},
      {"fstat64", reinterpret_cast<void*>(&fstat)},
      {"fstatat", reinterpret_cast<void*>(&fstatat)},
      {"fstatat64", reinterpret_cast<void*>(&fstatat)},
      {"fts64_close", reinterpret_cast<void*>(&fts_close)},
      {"fts64_open", reinterpret_cast<void*>(&fts_open)},
      {"lstat", reinterpret_cast<void*>(static_cast<Stat>(&lstat))},
      {"lstat64", reinterpret_cast<void*>(static_cast<Stat>(&lstat))},
      {"preadv2", reinterpret_cast<void*>(&preadv2)},
      {"preadv64v2", reinterpret_cast<void*>(&preadv2)},
      {"stat", reinterpret_cast<void*>(static_cast<Stat>(&stat))},
      {"stat64", reinterpret_cast<void*>(static_cast<Stat>(&stat))},
      {"statx", reinterpret_cast<void*>(&statx)},
  };
  for (const auto& [known, call] : calls) {
    if (std::strcmp(known, name) == 0) return call;
  }
  return nullptr;
}
