// Defines libc's functions as plain system calls by number, like some tools and allocators. For a
// preloaded library, or a part of a program.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int open_at(int dir, const char* path, int flags, mode_t mode) {
  return (int)syscall(SYS_openat, dir, path, flags, mode);
}

// va_arg needs the promoted type of a mode_t.
#define OPEN(name)                               \
  int name(const char* path, int flags, ...) {   \
    va_list list;                                \
    va_start(list, flags);                       \
    const mode_t mode = va_arg(list, mode_t);    \
    va_end(list);                                \
    return open_at(AT_FDCWD, path, flags, mode); \
  }
OPEN(open)
OPEN(open64)
#define OPENAT(name)                                    \
  int name(int dir, const char* path, int flags, ...) { \
    va_list list;                                       \
    va_start(list, flags);                              \
    const mode_t mode = va_arg(list, mode_t);           \
    va_end(list);                                       \
    return open_at(dir, path, flags, mode);             \
  }
OPENAT(openat)
OPENAT(openat64)
int close(int fd) { return (int)syscall(SYS_close, fd); }
ssize_t read(int fd, void* to, size_t n) { return syscall(SYS_read, fd, to, n); }
off_t lseek(int fd, off_t offset, int whence) { return syscall(SYS_lseek, fd, offset, whence); }
int dup(int fd) { return (int)syscall(SYS_dup, fd); }
int dup2(int from, int to) { return from == to ? from : (int)syscall(SYS_dup3, from, to, 0); }
int dup3(int from, int to, int flags) { return (int)syscall(SYS_dup3, from, to, flags); }
int flock(int fd, int how) { return (int)syscall(SYS_flock, fd, how); }
int unlink(const char* path) { return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0); }
int unlinkat(int dir, const char* path, int flags) {
  return (int)syscall(SYS_unlinkat, dir, path, flags);
}
int rename(const char* from, const char* to) {
  return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
int truncate(const char* path, off_t size) { return (int)syscall(SYS_truncate, path, size); }
int chmod(const char* path, mode_t mode) {
  return (int)syscall(SYS_fchmodat, AT_FDCWD, path, mode);
}
int chdir(const char* path) { return (int)syscall(SYS_chdir, path); }
ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  return syscall(SYS_sendmsg, fd, message, flags);
}
ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
  return syscall(SYS_recvmsg, fd, message, flags);
}
