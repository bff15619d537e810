#include "shim/process/stand_ins.h"

#include <cstdarg>

#include "shim/process/c_result.h"

namespace cube::shim::stand_in {

namespace sys = base::sys;

int openat(int dir, const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const auto mode = static_cast<mode_t>(va_arg(list, unsigned));
  va_end(list);
  return static_cast<int>(to_c(sys::openat(dir, path, flags, mode)));
}

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const auto mode = static_cast<mode_t>(va_arg(list, unsigned));
  va_end(list);
  return static_cast<int>(to_c(sys::openat(AT_FDCWD, path, flags, mode)));
}

int fstat(int fd, struct ::stat* st) { return static_cast<int>(to_c(sys::fstat(fd, st))); }
ssize_t read(int fd, void* to, size_t n) { return to_c(sys::read(fd, to, n)); }
ssize_t pread(int fd, void* to, size_t n, off_t at) { return to_c(sys::pread(fd, to, n, at)); }
off_t lseek(int fd, off_t offset, int whence) { return to_c(sys::lseek(fd, offset, whence)); }
int close(int fd) { return static_cast<int>(to_c(sys::close(fd))); }
void* mmap(void* at, size_t n, int protection, int flags, int fd, off_t offset) {
  return reinterpret_cast<void*>(to_c(sys::mmap(at, n, protection, flags, fd, offset)));
}
int munmap(void* at, size_t n) { return static_cast<int>(to_c(sys::munmap(at, n))); }
int madvise(void* at, size_t n, int advice) {
  return static_cast<int>(to_c(sys::madvise(at, n, advice)));
}

int fstatat(int dir, const char* path, struct ::stat* st, int flags) {
  return static_cast<int>(to_c(sys::fstatat(dir, path, st, flags)));
}
int stat(const char* path, struct ::stat* st) { return stand_in::fstatat(AT_FDCWD, path, st, 0); }
int lstat(const char* path, struct ::stat* st) {
  return stand_in::fstatat(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}
int statx(int dir, const char* path, int flags, unsigned mask, struct ::statx* x) {
  return static_cast<int>(to_c(sys::statx(dir, path, flags, mask, x)));
}
ssize_t preadv2(int fd, const struct ::iovec* parts, int count, off_t at, int flags) {
  // The system call has two parameters for the offset. On 64-bit machines, the kernel reads only
  // the first parameter.
  return to_c(sys::raw(SYS_preadv2, fd, sys::arg(parts), count, at, 0, flags));
}
int close_range(unsigned first, unsigned last, int flags) {
  return static_cast<int>(to_c(sys::raw(SYS_close_range, first, last, flags)));
}
void closefrom(int first) {
  const int least = first < 0 ? 0 : first;
  if (!sys::failed(sys::raw(SYS_close_range, least, ~0U, 0))) return;
  // The kernel is older than 5.9, so close the fds one by one.
  struct ::rlimit64 limit {};
  sys::raw(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, sys::arg(&limit));
  for (long fd = least; fd < static_cast<long>(limit.rlim_cur); ++fd)
    sys::close(static_cast<int>(fd));
}
int fcntl64(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  const long argument = va_arg(list, long);
  va_end(list);
  return static_cast<int>(to_c(sys::fcntl(fd, command, argument)));
}
ssize_t getdents64(int fd, void* to, size_t n) { return to_c(sys::getdents64(fd, to, n)); }
int execveat(int dir, const char* path, char* const* arguments, char* const* environment,
             int flags) {
  return static_cast<int>(to_c(sys::raw(SYS_execveat, dir, sys::arg(path), sys::arg(arguments),
                                        sys::arg(environment), flags)));
}
int renameat2(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) {
  return static_cast<int>(
      to_c(sys::raw(SYS_renameat2, from_dir, sys::arg(from), to_dir, sys::arg(to), flags)));
}
int mknodat(int dir, const char* path, mode_t mode, dev_t device) {
  return static_cast<int>(
      to_c(sys::raw(SYS_mknodat, dir, sys::arg(path), mode, static_cast<long>(device))));
}
int mknod(const char* path, mode_t mode, dev_t device) {
  return stand_in::mknodat(AT_FDCWD, path, mode, device);
}
ssize_t copy_file_range(int from, off_t* from_at, int to, off_t* to_at, size_t n, unsigned flags) {
  return to_c(sys::raw(SYS_copy_file_range, from, sys::arg(from_at), to, sys::arg(to_at),
                       static_cast<long>(n), flags));
}
int memfd_create(const char* name, unsigned flags) {
  return static_cast<int>(to_c(sys::memfd_create(name, flags)));
}
int pidfd_open(pid_t pid, unsigned flags) {
  return static_cast<int>(to_c(sys::raw(SYS_pidfd_open, pid, flags)));
}
int pidfd_getfd(int pidfd, int target, unsigned flags) {
  return static_cast<int>(to_c(sys::raw(SYS_pidfd_getfd, pidfd, target, flags)));
}

}  // namespace cube::shim::stand_in
