// Raw system calls. The library uses only these calls for files and memory, because it replaces
// libc's functions in the program. Every call returns what the kernel returns: a value, or -errno.
// errno is never touched. Thread-safe and async-signal-safe.
#pragma once

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>

#include "cache/base/process/lowest_closed.h"
#include "cache/base/result.h"

namespace cube::base::sys {

inline long raw(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0,
                long f = 0) {
#if defined(__x86_64__)
  long result;
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = a;
  register long x1 asm("x1") = b;
  register long x2 asm("x2") = c;
  register long x3 asm("x3") = d;
  register long x4 asm("x4") = e;
  register long x5 asm("x5") = f;
  asm volatile("svc 0"
               : "+r"(x0)
               : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
               : "memory");
  return x0;
#else
#error "cubeshim supports x86-64 and aarch64"
#endif
}

inline long arg(const void* p) { return reinterpret_cast<long>(p); }
inline bool failed(long result) { return result < 0 && result >= -4095; }

inline Result<long> checked(long result) {
  if (failed(result)) return fail(static_cast<int>(-result));
  return result;
}

inline long openat(int dir, const char* path, int flags, mode_t mode = 0) {
  return raw(SYS_openat, dir, arg(path), flags, static_cast<long>(mode));
}
inline long open(const char* path, int flags, mode_t mode = 0) {
  return openat(AT_FDCWD, path, flags, mode);
}
inline long close(int fd) {
  note_closed(fd);
  return raw(SYS_close, fd);
}
inline long read(int fd, void* to, std::size_t n) {
  return raw(SYS_read, fd, arg(to), static_cast<long>(n));
}
inline long write(int fd, const void* from, std::size_t n) {
  return raw(SYS_write, fd, arg(from), static_cast<long>(n));
}
inline long pread(int fd, void* to, std::size_t n, std::int64_t at) {
  return raw(SYS_pread64, fd, arg(to), static_cast<long>(n), at);
}
inline long pwrite(int fd, const void* from, std::size_t n, std::int64_t at) {
  return raw(SYS_pwrite64, fd, arg(from), static_cast<long>(n), at);
}
inline long lseek(int fd, std::int64_t offset, int whence) {
  return raw(SYS_lseek, fd, offset, whence);
}
inline long fcntl(int fd, int command, long argument = 0) {
  return raw(SYS_fcntl, fd, command, argument);
}
inline long dup3(int from, int to, int flags) {
  const long result = raw(SYS_dup3, from, to, flags);
#if defined(SYS_dup2)
  // A sandbox may allow only the older call.
  if ((result == -EPERM || result == -EACCES || result == -ENOSYS) && from != to) {
    const long dup = raw(SYS_dup2, from, to);
    if (dup >= 0 && (flags & O_CLOEXEC) != 0) fcntl(to, F_SETFD, FD_CLOEXEC);
    return dup;
  }
#endif
  return result;
}
inline long statx(int dir, const char* path, int flags, unsigned mask, struct ::statx* out) {
  return raw(SYS_statx, dir, arg(path), flags, static_cast<long>(mask), arg(out));
}
inline long fstat(int fd, struct ::stat* out) { return raw(SYS_fstat, fd, arg(out)); }
inline long fstatat(int dir, const char* path, struct ::stat* out, int flags) {
  return raw(SYS_newfstatat, dir, arg(path), arg(out), flags);
}
inline long readlink(const char* path, char* to, std::size_t n) {
  return raw(SYS_readlinkat, AT_FDCWD, arg(path), arg(to), static_cast<long>(n));
}
inline long readlinkat(int dir, const char* path, char* to, std::size_t n) {
  return raw(SYS_readlinkat, dir, arg(path), arg(to), static_cast<long>(n));
}
inline long rename(const char* from, const char* to) {
  return raw(SYS_renameat2, AT_FDCWD, arg(from), AT_FDCWD, arg(to), 0);
}
inline long fsync(int fd) { return raw(SYS_fsync, fd); }
inline long fdatasync(int fd) { return raw(SYS_fdatasync, fd); }
inline long flock(int fd, int operation) { return raw(SYS_flock, fd, operation); }
inline long getdents64(int fd, void* to, std::size_t n) {
  return raw(SYS_getdents64, fd, arg(to), static_cast<long>(n));
}
inline long unlink(const char* path) { return raw(SYS_unlinkat, AT_FDCWD, arg(path), 0); }
inline long getcwd(char* to, std::size_t n) {
  return raw(SYS_getcwd, arg(to), static_cast<long>(n));
}
inline long memfd_create(const char* name, unsigned flags) {
  return raw(SYS_memfd_create, arg(name), static_cast<long>(flags));
}
inline long mmap(void* at, std::size_t n, int protection, int flags, int fd, std::int64_t offset) {
  return raw(SYS_mmap, arg(at), static_cast<long>(n), protection, flags, fd, offset);
}
inline long munmap(void* at, std::size_t n) {
  return raw(SYS_munmap, arg(at), static_cast<long>(n));
}
inline long madvise(void* at, std::size_t n, int advice) {
  return raw(SYS_madvise, arg(at), static_cast<long>(n), advice);
}
inline long mlock2(const void* at, std::size_t n, int flags) {
  return raw(SYS_mlock2, arg(at), static_cast<long>(n), flags);
}
inline long fallocate(int fd, int mode, std::int64_t at, std::int64_t n) {
  return raw(SYS_fallocate, fd, mode, at, n);
}
inline long ftruncate(int fd, std::int64_t n) { return raw(SYS_ftruncate, fd, n); }
inline long chmod(const char* path, mode_t mode) {
  return raw(SYS_fchmodat, AT_FDCWD, arg(path), static_cast<long>(mode));
}
inline long socket(int domain, int type) { return raw(SYS_socket, domain, type, 0); }
inline long bind(int fd, const void* address, std::size_t n) {
  return raw(SYS_bind, fd, arg(address), static_cast<long>(n));
}
inline long connect(int fd, const void* address, std::size_t n) {
  return raw(SYS_connect, fd, arg(address), static_cast<long>(n));
}
inline long listen(int fd, int backlog) { return raw(SYS_listen, fd, backlog); }
inline long accept(int fd, int flags) { return raw(SYS_accept4, fd, 0, 0, flags); }
inline long getsockopt(int fd, int level, int option, void* to, unsigned* n) {
  return raw(SYS_getsockopt, fd, level, option, arg(to), arg(n));
}
inline long send(int fd, const void* from, std::size_t n, int flags) {
  return raw(SYS_sendto, fd, arg(from), static_cast<long>(n), flags);
}
inline long recv(int fd, void* to, std::size_t n, int flags) {
  return raw(SYS_recvfrom, fd, arg(to), static_cast<long>(n), flags);
}
// `at_most` null: waits without limit.
inline long poll(struct ::pollfd* fds, std::size_t n, timespec* at_most) {
  return raw(SYS_ppoll, arg(fds), static_cast<long>(n), arg(at_most), 0);
}
inline unsigned geteuid() { return static_cast<unsigned>(raw(SYS_geteuid)); }
inline int getpid() { return static_cast<int>(raw(SYS_getpid)); }
// `at_most_ns` UINT64_MAX: waits without limit.
inline long futex_wait(const void* word, std::uint32_t expected,
                       std::uint64_t at_most_ns = UINT64_MAX) {
  const timespec limit{static_cast<time_t>(at_most_ns / 1'000'000'000),
                       static_cast<long>(at_most_ns % 1'000'000'000)};
  return raw(SYS_futex, arg(word), FUTEX_WAIT, expected,
             at_most_ns == UINT64_MAX ? 0 : arg(&limit));
}
inline long futex_wake_one(const void* word) { return raw(SYS_futex, arg(word), FUTEX_WAKE, 1); }
inline long futex_wake_all(const void* word) {
  return raw(SYS_futex, arg(word), FUTEX_WAKE, 0x7fffffff);
}

// Reads a small file, such as a file in /proc, up to the end of the file or of the buffer. Returns
// the number of bytes, or -errno.
inline long read_small_file(const char* path, char* to, std::size_t capacity) {
  const long fd = open(path, O_RDONLY | O_CLOEXEC);
  if (failed(fd)) return fd;
  std::size_t got = 0;
  while (got < capacity) {
    const long n = read(static_cast<int>(fd), to + got, capacity - got);
    if (failed(n) || n == 0) break;
    got += static_cast<std::size_t>(n);
  }
  close(static_cast<int>(fd));
  return static_cast<long>(got);
}

}  // namespace cube::base::sys
