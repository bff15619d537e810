// Calls on served files, with the meaning that POSIX gives them. Each function looks up its fd.
// Each function returns a value or -errno, as the kernel would. If the fd is not served or has just
// been materialized, the function returns nothing, and the caller calls libc. A read, a seek or a
// stat makes no system call. Thread-safe and async-signal-safe.
#pragma once

#include <optional>

#include "shim/fd/fd_table.h"
#include "shim/process/libc_types.h"

namespace cube::shim::file_calls {

using Answer = std::optional<long>;

// read_and_seek.cc
Answer read(int fd, void* to, std::size_t n);
Answer pread(int fd, void* to, std::size_t n, std::int64_t at);
Answer readv(int fd, const struct ::iovec* parts, int count);
Answer preadv(int fd, const struct ::iovec* parts, int count, std::int64_t at);
// If `at` is -1, reads at the file's own offset.
Answer preadv2(int fd, const struct ::iovec* parts, int count, std::int64_t at, int flags);
Answer lseek(int fd, std::int64_t offset, int whence);
// stat_calls.cc
Answer stat(int fd, struct ::stat* st);
Answer statx(int fd, unsigned mask, struct ::statx* x);
// The fd to pass to the stat of the next library. It is needed if stat and statx above have no
// answer, or if another library replaces libc's stat (real::stat_is_anothers). For a served file,
// the fd refers to the origin's own file and was opened with O_PATH, which costs a lookup but not
// an open.
class StatFd {
 public:
  explicit StatFd(int fd) : fd_(fd) {
    if (g_fds.kind(fd) == RowKind::served) find();
  }
  ~StatFd() {
    if (own_ >= 0) end();
  }
  StatFd(const StatFd&) = delete;
  StatFd& operator=(const StatFd&) = delete;
  operator int() const { return fd_; }

 private:
  void find();
  void end() const;

  int fd_, own_ = -1;
};
// file_calls.cc
Answer ioctl(int fd, unsigned long request, void* argument);
Answer fcntl(int fd, int command, long argument);
Answer advise(int fd);  // posix_fadvise, readahead: 0
Answer map(int fd, void* at, std::size_t n, int protection, int flags, std::int64_t offset);

// close_and_dup.cc. `close` closes parked and served fds. Before libc closes any other fd, call
// `note_close`.
Answer close(int fd);
// The scope of libc's close of an fd. The destructor ends the file's writer and counts the fd as
// free.
class ClosingFd {
 public:
  ClosingFd() = default;
  ClosingFd(int fd, OpenFileRef file, std::uint32_t kept)
      : fd_(fd), kept_(kept), file_(std::move(file)) {}
  ~ClosingFd();
  ClosingFd(const ClosingFd&) = delete;
  ClosingFd& operator=(const ClosingFd&) = delete;

 private:
  int fd_ = -1;
  std::uint32_t kept_ = 0;  // PosixLocks::kept_mark
  OpenFileRef file_;
};
ClosingFd note_close(int fd);
// The scope of a dup2 or dup3 of `fd` over `to`.
ClosingFd note_replaced(int fd, int to);
Answer dup(int fd);
// Call this after a dup. Another thread may have materialized the file after the lookup and before
// `copy` had a row.
void follow_if_moved(const OpenFile& file, int from, int copy, bool close_on_exec);
Answer dup_to(int fd, int to, int flags, bool same_is_error);
// Call this before close_range(2) with these flags.
void close_range(unsigned first, unsigned last, int flags);
// Call this after close_range(2).
void range_is_closed(unsigned first);

}  // namespace cube::shim::file_calls
