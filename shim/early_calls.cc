#include "shim/early_calls.h"

#include <cstdarg>

#include "shim/calls/c_result.h"

namespace cube::shim::early {

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

}  // namespace cube::shim::early
