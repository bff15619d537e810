// A placeholder is the kernel fd that a served file occupies: a symbolic link opened with O_PATH. A
// call that bypasses the shim fails on a placeholder: with EBADF on the fd, with ENOTDIR if the fd
// is used as a directory, and with ELOOP through /proc/self/fd/N. So the call never returns wrong
// bytes or a false end of file.
//
// When a program closes a served file, its placeholder may stay open ("parked") in the lane of the
// thread (cache/base/lane.h). The next served open of that thread then needs no system call. POSIX
// requires the lowest free fd, so an fd is parked or reused only if the kernel has no lower free
// fd. Other calls that create or list fds close the parked fds first. A thread without a parked fd
// uses the lowest fd that another thread has parked. A thread with a parked fd checks for a lower
// parked fd only at every k_between_looks-th open, because each check reads cache lines that other
// threads write. On 16 cores, 16 threads that check at every 64th open use 2.3 times the processor
// time of threads that check at every 4,096th. Thread-safe and async-signal-safe. Only the process
// that owns the fd table may call these functions.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "cache/base/lane.h"

namespace cube::shim::placeholder {

// Call this when the program closes a served file. Parks the placeholder, or closes it in the
// kernel.
void release(int fd);

inline constexpr std::uint32_t k_between_looks = 4096;
extern constinit base::Lane<std::atomic<int>> g_parked[base::k_lanes];  // the fd plus one; 0: none
// A bit for each lane in which an fd may be parked. release() stores the fd and then loads the bit;
// unpark_slow() clears the bit and then takes the fd. So at least one of them sees the store of the
// other.
extern constinit std::atomic<std::uint64_t> g_parking;
extern constinit thread_local std::uint32_t t_opens [[gnu::tls_model("initial-exec")]];
void unpark_slow();
bool is_parked_slow(int fd);
// True if the program has closed the fd, but it is still open in the kernel.
inline bool is_parked(int fd) {
  return fd >= 0 && g_parking.load(std::memory_order_relaxed) != 0 && is_parked_slow(fd);
}
// Version:32 | bound:32. No fd below the bound is free, except parked fds. Each close by the
// program ends with a new version, so that an open that began earlier cannot store an outdated
// bound.
extern constinit std::atomic<std::uint64_t> g_bound;
inline bool is_below_bound(int fd) {
  return fd < static_cast<int>(static_cast<std::uint32_t>(g_bound.load(std::memory_order_acquire)));
}
// Opens a new placeholder: takes no parked fd and duplicates none. Returns the fd, or -errno.
int open_fresh();
int acquire_slow(int least);
// Returns an fd, or -errno. `least` is the lower bound of F_DUPFD, or 0.
inline int acquire(int least = 0) {
  if (least == 0 && ++t_opens % k_between_looks != 0) {
    std::atomic<int>& own = g_parked[base::own_lane()].of;
    int parked = own.load(std::memory_order_relaxed);
    // The parked fd cannot be reused if a lower fd has become free since it was parked.
    if (parked != 0 && is_below_bound(parked - 1) &&
        own.compare_exchange_strong(parked, 0, std::memory_order_acq_rel))
      return parked - 1;
  }
  return acquire_slow(least);
}
// Call this before a call that makes an fd, or that shows which fds exist.
inline void unpark() {
  if (g_parking.load(std::memory_order_relaxed) != 0) [[unlikely]]
    unpark_slow();
}
// Call this before a call that asks the kernel about this fd.
inline void unpark_if(int fd) {
  if (is_parked(fd)) [[unlikely]]
    unpark_slow();
}
// Call this after the close of an fd that was not a placeholder. Before the close has ended, opens
// by signal handlers and other threads would still find the fd in use.
inline void note_freed(int fd) {
  std::uint64_t before = g_bound.load(std::memory_order_relaxed);
  std::uint64_t after = 0;
  do {
    const std::uint32_t bound =
        std::min(static_cast<std::uint32_t>(before), static_cast<std::uint32_t>(fd < 0 ? 0 : fd));
    after = ((before >> 32) + 1) << 32 | bound;
  } while (!g_bound.compare_exchange_weak(before, after, std::memory_order_acq_rel));
}
inline void fd_was_freed(int fd) {
  note_freed(fd);
  unpark();
}
// Call this when the program may have set RLIMIT_NOFILE. An fd at or above the limit is not parked,
// because the kernel would not return it again.
void note_limit();
// Call this when the program closes a range of fds. Closes the parked fds in the range.
void forget_parked_in(unsigned first, unsigned last);

}  // namespace cube::shim::placeholder
