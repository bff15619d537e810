// close, dup, fcntl and ioctl of one fd.
#include <linux/fs.h>
#include <sys/ioctl.h>

#include <cstdarg>

#include "shim/calls/file_calls.h"
#include "shim/calls/name/name_change.h"
#include "shim/calls/new_fds.h"
#include "shim/libc/answers.h"
#include "shim/process/c_result.h"
#include "shim/process/cancellation.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;
namespace calls = cube::shim::file_calls;
using cube::shim::to_c;

#define CUBE_CLOSE(name)                                                                        \
  int export_##name(int fd) {                                                                   \
    CUBE_PLAIN(int, {                                                                           \
      if (const auto answer = calls::close(fd); answer) return static_cast<int>(to_c(*answer)); \
      const auto held = calls::note_close(fd);                                                  \
      return shim::by_kernel(real::name(fd));                                                   \
    });                                                                                         \
    CUBE_CANCEL_OR_PROFILED(close, .fd = fd);                                                   \
  }
CUBE_CLOSE(close)
CUBE_CLOSE(__close)
int export_close_range(unsigned first, unsigned last, int flags) {
  calls::close_range(first, last, flags);
  const int result = real::close_range(first, last, flags);
  calls::range_is_closed(first);
  if (result == 0 && (flags & CLOSE_RANGE_CLOEXEC) == 0) shim::closed_from(first, last);
  return result;
}
void export_closefrom(int first) {
  const unsigned least = first < 0 ? 0U : static_cast<unsigned>(first);
  calls::close_range(least, ~0U, 0);
  real::closefrom(first);
  calls::range_is_closed(least);
  shim::closed_from(least, ~0U);
}
int export_dup(int fd) {
  if (const auto answer = calls::dup(fd); answer)
    return shim::copied(fd, static_cast<int>(to_c(*answer)));
  shim::expect_new_fd();
  return shim::copied(fd, shim::noted_dup(fd, real::dup(fd), false));
}
#define CUBE_DUP_TO(of_libc, flags, same_is_error)                     \
  const auto held = calls::note_replaced(fd, to);                      \
  if (const auto answer = calls::dup_to(fd, to, flags, same_is_error)) \
    return shim::copied(fd, static_cast<int>(to_c(*answer)));          \
  return shim::copied(fd, shim::noted_dup(fd, of_libc, (flags) != 0))
int export_dup2(int fd, int to) { CUBE_DUP_TO(real::dup2(fd, to), 0, false); }
int export___dup2(int fd, int to) { CUBE_DUP_TO(real::__dup2(fd, to), 0, false); }
int export_dup3(int fd, int to, int flags) {
  if ((flags & ~O_CLOEXEC) != 0) return real::dup3(fd, to, flags);
  CUBE_DUP_TO(real::dup3(fd, to, flags), flags, true);
}

int export_ioctl(int fd, unsigned long request, ...) {
  va_list list;
  va_start(list, request);
  void* const argument = va_arg(list, void*);
  va_end(list);
  if (const auto answer = calls::ioctl(fd, request, argument); answer)
    return static_cast<int>(to_c(*answer));
  const int result = real::ioctl(fd, request, argument);
  const bool changes =
      request == FS_IOC_SETFLAGS || request == FS_IOC_FSSETXATTR || request == FS_IOC_SETVERSION;
  if (changes && result == 0) shim::note_changed(fd);
  return result;
}
int export_isatty(int fd) {
  if (const auto answer = calls::ioctl(fd, TCGETS, nullptr); answer) {
    errno = ENOTTY;
    return 0;
  }
  return real::isatty(fd);
}
int export_tcgetattr(int fd, struct ::termios* t) {
  CUBE_ANSWER_OR(int, calls::ioctl(fd, TCGETS, nullptr), real::tcgetattr(fd, t));
}
