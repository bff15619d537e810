#include "shim/fd/placeholder.h"

#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstdint>

#include "cache/base/sys.h"
#include "shim/fd/fd_table.h"
#include "shim/process/process.h"

namespace cube::shim::placeholder {

constinit base::Lane<std::atomic<int>> g_parked[base::k_lanes];
constinit std::atomic<std::uint64_t> g_parking{0};
constinit thread_local std::uint32_t t_opens [[gnu::tls_model("initial-exec")]] = 0;
constinit std::atomic<std::uint64_t> g_bound{0};

namespace {

namespace sys = base::sys;

void raise_bound(std::uint64_t before, int fd) {
  const std::uint64_t after = (before & ~0xffffffffULL) | static_cast<std::uint32_t>(fd + 1);
  if (static_cast<std::uint32_t>(before) < static_cast<std::uint32_t>(fd + 1)) {
    g_bound.compare_exchange_strong(before, after, std::memory_order_acq_rel);
  }
}

// The RLIMIT_NOFILE that the program has set, or INT_MAX. Fds that were opened before the program
// lowered the limit may lie above it.
constinit std::atomic<int> g_limit{INT_MAX};

// The fd that was returned last. If it is still a placeholder, its dup costs a fifth of an open.
constinit std::atomic<int> g_model{-1};

int dup_model(int least) {
  const int model = g_model.load(std::memory_order_relaxed);
  // Dups only a placeholder. If the fd referred to a file of the program, a close of the dup would
  // drop the program's record locks on the file.
  const OpenFileRef held = g_fds.acquire(model);
  if (!held || !held->is_placeholder()) return -EBADF;
  const int fd = static_cast<int>(sys::fcntl(model, F_DUPFD_CLOEXEC, least));
  // The program may have opened a file under `model` between the check and the dup.
  if (fd < 0 || (held->is_placeholder() && g_fds.acquire(model).get() == held.get())) return fd;
  sys::close(fd);
  return -EBADF;
}

void close_parked(int fd) {
  sys::close(fd);
  note_freed(fd);
}

// Calls look(lane, fd) for each parked fd until look returns true. Returns false if no call
// returned true.
template <typename Look>
bool for_each_parked(Look&& look) {
  for (std::uint64_t left = g_parking.load(std::memory_order_seq_cst); left != 0;
       left &= left - 1) {
    std::atomic<int>& lane = g_parked[std::countr_zero(left)].of;
    const int parked = lane.load(std::memory_order_seq_cst);
    if (parked != 0 && look(lane, parked - 1)) return true;
  }
  return false;
}

// Takes the lowest parked fd. Returns -1 if the kernel has a lower free fd. If another thread has
// parked the fd, the calling thread's parked fd moves to the lane of that thread.
int take_lowest() {
  std::atomic<int>& own = g_parked[base::own_lane()].of;
  while (true) {
    std::atomic<int>* found = nullptr;
    int lowest = INT_MAX;
    for_each_parked([&](std::atomic<int>& lane, int fd) {
      if (fd < lowest) {
        found = &lane;
        lowest = fd;
      }
      return false;
    });
    if (found == nullptr) return -1;
    const int mine = found == &own ? 0 : own.exchange(0, std::memory_order_seq_cst);
    int parked = lowest + 1;
    if (!found->compare_exchange_strong(parked, mine, std::memory_order_seq_cst)) {
      // `mine` is now in no row and in no lane.
      if (mine != 0) close_parked(mine - 1);
      continue;
    }
    if (is_below_bound(lowest)) return lowest;
    // Either a lower fd has become free since this fd was parked, or this fd is the lowest and the
    // kernel will return it again.
    close_parked(lowest);
    return -1;
  }
}

}  // namespace

int open_fresh() {
  // /proc/self/exe is not suitable, because qemu-user and other emulators open the emulated program
  // for this name.
  const long fd = sys::open("/proc/self/root", O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (!sys::failed(fd)) return static_cast<int>(fd);
  // Without /proc, no symbolic link is certain to exist. Calls on a directory fail with EBADF or
  // EISDIR.
  return static_cast<int>(sys::open("/", O_PATH | O_CLOEXEC));
}

void unpark_slow() {
  if (!process::owns_table()) return;
  while (const std::uint64_t left = g_parking.load(std::memory_order_seq_cst)) {
    const int lane = std::countr_zero(left);
    g_parking.fetch_and(~(std::uint64_t{1} << lane), std::memory_order_seq_cst);
    const int parked = g_parked[lane].of.exchange(0, std::memory_order_seq_cst);
    if (parked != 0) close_parked(parked - 1);
  }
}

bool is_parked_slow(int fd) {
  return for_each_parked([&](std::atomic<int>&, int parked) { return parked == fd; });
}

int acquire_slow(int least) {
  if (least > 0) {
    unpark();
    if (const int fd = dup_model(least); fd >= 0) return fd;
    const int any = open_fresh();
    if (any < 0 || any >= least) return any;
    const long moved = sys::fcntl(any, F_DUPFD_CLOEXEC, least);
    sys::close(any);
    return static_cast<int>(moved);
  }
  if (const int parked = take_lowest(); parked >= 0) return parked;
  const std::uint64_t bound = g_bound.load(std::memory_order_acquire);
  int fd = dup_model(0);
  if (fd < 0) fd = open_fresh();
  if (fd < 0) return fd;
  g_model.store(fd, std::memory_order_relaxed);
  // The kernel returns the lowest free fd, so no lower fd was free.
  raise_bound(bound, fd);
  return fd;
}

void release(int fd) {
  const std::uint32_t lane = base::own_lane();
  std::atomic<int>& own = g_parked[lane].of;
  int parked = own.load(std::memory_order_relaxed);
  const bool lowest = is_below_bound(fd) && fd < g_limit.load(std::memory_order_relaxed);
  // Keeps the lower of two free fds.
  while (lowest && (parked == 0 || parked > fd + 1)) {
    if (!own.compare_exchange_weak(parked, fd + 1, std::memory_order_seq_cst)) continue;
    const std::uint64_t bit = std::uint64_t{1} << lane;
    if ((g_parking.load(std::memory_order_seq_cst) & bit) == 0)
      g_parking.fetch_or(bit, std::memory_order_seq_cst);
    if (parked == 0) return;
    fd = parked - 1;
    break;
  }
  close_parked(fd);
}

void note_limit() {
  struct ::rlimit limit {};
  if (sys::failed(sys::raw(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, sys::arg(&limit)))) return;
  g_limit.store(static_cast<int>(std::min<rlim_t>(limit.rlim_cur, INT_MAX)),
                std::memory_order_relaxed);
}

void forget_parked_in(unsigned first, unsigned last) {
  for_each_parked([&](std::atomic<int>& lane, int fd) {
    int parked = fd + 1;
    const bool is_in = static_cast<unsigned>(fd) >= first && static_cast<unsigned>(fd) <= last;
    if (is_in && lane.compare_exchange_strong(parked, 0, std::memory_order_acq_rel)) sys::close(fd);
    return false;
  });
}

}  // namespace cube::shim::placeholder
