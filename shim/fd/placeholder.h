// A kernel fd, the placeholder, holds each served file's number: a symbolic link opened with
// O_PATH. A call that bypasses the shim fails on a placeholder: EBADF on the fd, ENOTDIR as a
// directory, ELOOP through /proc/self/fd. It never gets wrong bytes, nor a silent end of file.
//
// When a program closes a served file, one placeholder may stay open ("parked"). The next served
// open then needs no system call. POSIX requires the lowest free number, so a number is parked or
// reused only if no lower one is free. Other calls that create or list fds close the parked one
// first. Thread safety: all of it; async-signal-safe. Only the owner process may call.
#pragma once

#include <atomic>
#include <cstdint>

namespace cube::shim::placeholder {

// Closes it for the program.
void release(int fd);

extern constinit std::atomic<int> g_parked;
void unpark_slow();
// No number below the bound is free, the parked one apart. Version:32 | bound:32; every close of
// the program makes a new version when it is over, so that a bound found by an open that began
// before is not believed.
extern constinit std::atomic<std::uint64_t> g_bound;
inline bool is_below_bound(int fd) {
  return fd < static_cast<int>(static_cast<std::uint32_t>(g_bound.load(std::memory_order_acquire)));
}
int acquire_slow(int least);
void close_parked(int fd);
// A number, or -errno. `least`: F_DUPFD's lower bound; 0 is any.
inline int acquire(int least = 0) {
  if (least == 0) {
    if (const int parked = g_parked.exchange(-1, std::memory_order_acq_rel); parked >= 0) {
      if (is_below_bound(parked)) return parked;
      // A lower one has become free since it was parked.
      close_parked(parked);
    }
  }
  return acquire_slow(least);
}
// Before a call that makes an fd, or that shows which are there.
inline void unpark() {
  if (g_parked.load(std::memory_order_relaxed) >= 0) [[unlikely]]
    unpark_slow();
}
// Before a call that asks the kernel about this very number.
inline void unpark_if(int fd) {
  if (fd >= 0 && fd == g_parked.load(std::memory_order_relaxed)) [[unlikely]]
    unpark_slow();
}
// A number that was not a placeholder is closed. Told after the close: a signal handler, or another
// thread, that opens a file while it goes on finds the number still taken.
void note_freed(int fd);
inline void fd_was_freed(int fd) {
  note_freed(fd);
  unpark();
}
// The program has set RLIMIT_NOFILE, maybe: no number from the limit on is parked, for the kernel
// would not give it out again.
void note_limit();
// The host closes a range: a parked number in it is gone.
void forget_parked_in(unsigned first, unsigned last);

}  // namespace cube::shim::placeholder
