// A kernel fd, the placeholder, holds each served file's number: a symbolic link opened with
// O_PATH. A call that bypasses the shim fails on a placeholder: EBADF on the fd, ENOTDIR as a
// directory, ELOOP through /proc/self/fd. It never gets wrong bytes, nor a silent end of file.
//
// When a program closes a served file, its placeholder may stay open ("parked") in the lane of the
// thread (cache/base/lane.h). The next served open of that thread then needs no system call. POSIX
// requires the lowest free fd, so an fd is parked or reused only if the kernel has no lower one
// free. Other calls that create or list fds close the parked ones first. A lower fd that another
// thread has parked is taken by a thread that has parked none; a thread with a parked fd looks for
// one only at every k_between_looks-th open, because each look reads the lines that the other
// threads write. On 16 cores a look at every 64th open cost 16 threads 2.3 times the processor time
// of one at every 4,096th. Thread safety: all of it; async-signal-safe. Only the owner process may
// call.
#pragma once

#include <atomic>
#include <cstdint>

#include "cache/base/lane.h"

namespace cube::shim::placeholder {

// Closes it for the program.
void release(int fd);

inline constexpr std::uint32_t k_between_looks = 4096;
extern constinit base::Lane<std::atomic<int>>
    g_parked[base::k_lanes];  // the number plus one; 0: none
// A bit for each lane in which a number may be parked. release() stores the number first and looks
// at the bit then; unpark_slow() clears the bit first: one of the two sees the other.
extern constinit std::atomic<std::uint64_t> g_parking;
extern constinit thread_local std::uint32_t t_opens [[gnu::tls_model("initial-exec")]];
void unpark_slow();
bool is_parked_slow(int fd);
// Closed already, as far as the program knows.
inline bool is_parked(int fd) {
  return fd >= 0 && g_parking.load(std::memory_order_relaxed) != 0 && is_parked_slow(fd);
}
// No number below the bound is free, parked ones apart. Version:32 | bound:32; every close of the
// program makes a new version when it is over, so that a bound found by an open that began before
// is not believed.
extern constinit std::atomic<std::uint64_t> g_bound;
inline bool is_below_bound(int fd) {
  return fd < static_cast<int>(static_cast<std::uint32_t>(g_bound.load(std::memory_order_acquire)));
}
int acquire_slow(int least);
// A number, or -errno. `least`: F_DUPFD's lower bound; 0 is any.
inline int acquire(int least = 0) {
  if (least == 0 && ++t_opens % k_between_looks != 0) {
    std::atomic<int>& own = g_parked[base::own_lane()].of;
    int parked = own.load(std::memory_order_relaxed);
    // Not if a lower one has become free since it was parked.
    if (parked != 0 && is_below_bound(parked - 1) &&
        own.compare_exchange_strong(parked, 0, std::memory_order_acq_rel))
      return parked - 1;
  }
  return acquire_slow(least);
}
// Before a call that makes an fd, or that shows which are there.
inline void unpark() {
  if (g_parking.load(std::memory_order_relaxed) != 0) [[unlikely]]
    unpark_slow();
}
// Before a call that asks the kernel about this very number.
inline void unpark_if(int fd) {
  if (is_parked(fd)) [[unlikely]]
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
