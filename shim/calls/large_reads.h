// Reads of a large file, whose fd is the origin's own (cache/fill/large/large_file.h). The kernel
// keeps the offset. One lseek claims the bytes of a read, so that no other process that shares the
// open file reads the same bytes. A function returns nothing if libc must make the call: the fd is
// not a large file, the read begins at the file's end, or the arguments are wrong. Thread-safe and
// async-signal-safe.
#pragma once

#include <sys/uio.h>

#include "shim/calls/file_calls.h"

namespace cube::shim::large_reads {

using file_calls::Answer;

// Serves a file that has just been opened by this path as a large file. Returns false if that is
// not possible. The fd must have no row yet. `otherwise` is the counter for an open that is not
// served. If the file is large but cannot be served now, serve() changes the counter from
// bypassed_size to bypassed_busy.
bool serve(int fd, std::string_view key, bool close_on_exec, base::Counter& otherwise);

Answer read_slow(int fd, void* to, std::size_t n);
Answer pread_slow(int fd, void* to, std::size_t n, std::int64_t at);
Answer readv_slow(int fd, const struct ::iovec* parts, int count);
Answer preadv_slow(int fd, const struct ::iovec* parts, int count, std::int64_t at);

// Handles POSIX_FADV_WILLNEED for the bytes [at, at + n) of a file, or from `at` to the end of the
// file if n is 0. Returns true if their pages are present or will be fetched ahead. In that case,
// do not pass the advice to the kernel, because the kernel would read the pages from the origin
// again.
bool bring_wanted(int fd, std::int64_t at, std::int64_t n);
// Call this after the kernel has accepted this advice (POSIX_FADV_*, except WILLNEED) for the file.
void note_advice(int fd, int advice);

inline bool is_large(int fd) { return g_fds.kind(fd) == RowKind::large; }
inline Answer read(int fd, void* to, std::size_t n) {
  return is_large(fd) ? read_slow(fd, to, n) : Answer{};
}
inline Answer pread(int fd, void* to, std::size_t n, std::int64_t at) {
  return is_large(fd) ? pread_slow(fd, to, n, at) : Answer{};
}
inline Answer readv(int fd, const struct ::iovec* parts, int count) {
  return is_large(fd) ? readv_slow(fd, parts, count) : Answer{};
}
inline Answer preadv(int fd, const struct ::iovec* parts, int count, std::int64_t at) {
  return is_large(fd) ? preadv_slow(fd, parts, count, at) : Answer{};
}

}  // namespace cube::shim::large_reads
