// Reads, seeks and advice on one fd.
#include "shim/calls/file_calls.h"
#include "shim/calls/large_reads.h"
#include "shim/fd/materialize.h"
#include "shim/libc/answers.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;
namespace calls = cube::shim::file_calls;
using cube::shim::to_c;

ssize_t export_read(int fd, void* to, size_t n) {
  CUBE_CANCEL_OR_ANSWER_OR(ssize_t, calls::read(fd, to, n), real::read(fd, to, n), .fd = fd,
                           .wanted = n);
}
ssize_t export___read(int fd, void* to, size_t n) {
  CUBE_CANCEL_OR_ANSWER_OR(ssize_t, calls::read(fd, to, n), real::__read(fd, to, n), .fd = fd,
                           .wanted = n);
}
// If the buffer is too small, the fortified variants end the program. This is left to libc.
ssize_t export___read_chk(int fd, void* to, size_t n, size_t room) {
  if (n > room) return real::__read_chk(fd, to, n, room);
  CUBE_CANCEL_OR_ANSWER_OR(ssize_t, calls::read(fd, to, n), real::__read_chk(fd, to, n, room),
                           .fd = fd, .wanted = n);
}
#define CUBE_PREAD(name)                                                                      \
  ssize_t export_##name(int fd, void* to, size_t n, off_t at) {                               \
    CUBE_CANCEL_OR_ANSWER_OR(ssize_t, calls::pread(fd, to, n, at), real::name(fd, to, n, at), \
                             .fd = fd, .wanted = n, .at = at);                                \
  }
CUBE_PREAD(pread)
CUBE_PREAD(pread64)
CUBE_PREAD(__pread64)
#define CUBE_PREAD_CHK(name)                                                                    \
  ssize_t export_##name(int fd, void* to, size_t n, off_t at, size_t room) {                    \
    if (n > room) return real::name(fd, to, n, at, room);                                       \
    CUBE_CANCEL_OR_ANSWER_OR(ssize_t, calls::pread(fd, to, n, at),                              \
                             real::name(fd, to, n, at, room), .fd = fd, .wanted = n, .at = at); \
  }
CUBE_PREAD_CHK(__pread_chk)
CUBE_PREAD_CHK(__pread64_chk)
ssize_t export_readv(int fd, const struct ::iovec* parts, int count) {
  CUBE_CANCEL_OR_ANSWER_OR(ssize_t, calls::readv(fd, parts, count), real::readv(fd, parts, count),
                           .fd = fd);
}
#define CUBE_PREADV(name)                                                           \
  ssize_t export_##name(int fd, const struct ::iovec* parts, int count, off_t at) { \
    CUBE_CANCEL_OR_ANSWER_OR(ssize_t, calls::preadv(fd, parts, count, at),          \
                             real::name(fd, parts, count, at), .fd = fd, .at = at); \
  }
CUBE_PREADV(preadv)
CUBE_PREADV(preadv64)
#define CUBE_PREADV2(name)                                                                     \
  ssize_t export_##name(int fd, const struct ::iovec* parts, int count, off_t at, int flags) { \
    CUBE_CANCEL_OR_ANSWER_OR(ssize_t, calls::preadv2(fd, parts, count, at, flags),             \
                             real::name(fd, parts, count, at, flags), .fd = fd, .at = at);     \
  }
CUBE_PREADV2(preadv2)
CUBE_PREADV2(preadv64v2)
#define CUBE_LSEEK(name)                                                                       \
  off_t export_##name(int fd, off_t offset, int whence) {                                      \
    CUBE_PLAIN(off_t, {                                                                        \
      CUBE_ANSWER_OR(off_t, calls::lseek(fd, offset, whence), real::name(fd, offset, whence)); \
    });                                                                                        \
    CUBE_PROFILED(seek, .fd = fd, .at = offset, .whence = whence);                             \
  }
CUBE_LSEEK(lseek)
CUBE_LSEEK(lseek64)
CUBE_LSEEK(__lseek)

// posix_fadvise returns the error instead of setting errno. If the fd refers to the origin's own
// file, the kernel gets the advice, which also helps a fetch that reads through this fd
// (cache/fill/partial_fill.h). For a file in blocks, this library fetches the wanted ranges, and
// notes other advice after the kernel has accepted it.
#define CUBE_FADVISE(name)                                                                       \
  int export_##name(int fd, off_t at, off_t n, int advice) {                                     \
    const bool known = advice >= POSIX_FADV_NORMAL && advice <= POSIX_FADV_NOREUSE && n >= 0;    \
    if (known && calls::advise(fd)) return 0;                                                    \
    if (!known) shim::materialize(fd);                                                           \
    const bool is_large = shim::large_reads::is_large(fd);                                       \
    if (is_large && advice == POSIX_FADV_WILLNEED && shim::large_reads::bring_wanted(fd, at, n)) \
      return 0;                                                                                  \
    const int error = real::name(fd, at, n, advice);                                             \
    if (error == 0 && is_large) [[unlikely]]                                                     \
      shim::large_reads::note_advice(fd, advice);                                                \
    return error;                                                                                \
  }
CUBE_FADVISE(posix_fadvise)
CUBE_FADVISE(posix_fadvise64)
ssize_t export_readahead(int fd, off_t at, size_t n) {
  if (!shim::large_reads::is_large(fd)) {
    CUBE_ANSWER_OR(ssize_t, calls::advise(fd), real::readahead(fd, at, n));
  }
  // For readahead, unlike posix_fadvise, a length of 0 does not mean "to the end of the file".
  if (n != 0 && shim::large_reads::bring_wanted(fd, at, static_cast<off_t>(n))) return 0;
  return real::readahead(fd, at, n);
}
