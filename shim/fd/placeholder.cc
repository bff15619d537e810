#include "shim/fd/placeholder.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>

#include "cache/base/sys.h"
#include "shim/fd/fd_table.h"
#include "shim/process/process.h"

namespace cube::shim::placeholder {

constinit std::atomic<int> g_parked{-1};
constinit std::atomic<std::uint64_t> g_bound{0};

namespace {

namespace sys = base::sys;

void raise_bound(std::uint64_t before, int fd) {
  const std::uint64_t after = (before & ~0xffffffffULL) | static_cast<std::uint32_t>(fd + 1);
  if (static_cast<std::uint32_t>(before) < static_cast<std::uint32_t>(fd + 1)) {
    g_bound.compare_exchange_strong(before, after, std::memory_order_acq_rel);
  }
}

// RLIMIT_NOFILE, once the program has set it. Numbers that were open before may lie beyond.
constinit std::atomic<int> g_limit{INT_MAX};

// The number handed out last. A dup of it costs a fifth of an open, if it is still a placeholder.
constinit std::atomic<int> g_model{-1};

int dup_model(int least) {
  const int model = g_model.load(std::memory_order_relaxed);
  // Never a dup of what may be the program's: closing it again would drop the program's record
  // locks on that file.
  const OpenFileRef held = g_fds.acquire(model);
  if (!held || !held->is_placeholder()) return -EBADF;
  const int fd = static_cast<int>(sys::fcntl(model, F_DUPFD_CLOEXEC, least));
  // It may have become the program's between the look and the dup.
  if (fd < 0 || (held->is_placeholder() && g_fds.acquire(model).get() == held.get())) return fd;
  sys::close(fd);
  return -EBADF;
}

int open_fresh() {
  // Not `exe`: qemu-user and others that run programs of another architecture open the program
  // itself by that name.
  const long fd = sys::open("/proc/self/root", O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (!sys::failed(fd)) return static_cast<int>(fd);
  // Without /proc there is no symbolic link that is sure to exist. A directory answers EBADF and
  // EISDIR.
  return static_cast<int>(sys::open("/", O_PATH | O_CLOEXEC));
}

}  // namespace

void unpark_slow() {
  if (!process::owns_table()) return;
  const int fd = g_parked.exchange(-1, std::memory_order_acq_rel);
  if (fd < 0) return;
  sys::close(fd);
  note_freed(fd);
}

void note_freed(int fd) {
  std::uint64_t before = g_bound.load(std::memory_order_relaxed);
  std::uint64_t after = 0;
  do {
    const std::uint32_t bound =
        std::min(static_cast<std::uint32_t>(before), static_cast<std::uint32_t>(fd < 0 ? 0 : fd));
    after = ((before >> 32) + 1) << 32 | bound;
  } while (!g_bound.compare_exchange_weak(before, after, std::memory_order_acq_rel));
}

void close_parked(int fd) {
  sys::close(fd);
  note_freed(fd);
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
  const std::uint64_t bound = g_bound.load(std::memory_order_acquire);
  int fd = dup_model(0);
  if (fd < 0) fd = open_fresh();
  if (fd < 0) return fd;
  g_model.store(fd, std::memory_order_relaxed);
  // The kernel gives the lowest number, so none below it was free.
  raise_bound(bound, fd);
  return fd;
}

void release(int fd) {
  int parked = g_parked.load(std::memory_order_relaxed);
  const bool lowest = is_below_bound(fd) && fd < g_limit.load(std::memory_order_relaxed);
  // The lower of two free numbers is the one to keep.
  while (lowest && (parked < 0 || parked > fd)) {
    if (!g_parked.compare_exchange_weak(parked, fd, std::memory_order_acq_rel)) continue;
    if (parked < 0) return;
    fd = parked;
    break;
  }
  sys::close(fd);
  note_freed(fd);
}

void note_limit() {
  struct ::rlimit limit {};
  if (sys::failed(sys::raw(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, sys::arg(&limit)))) return;
  g_limit.store(static_cast<int>(std::min<rlim_t>(limit.rlim_cur, INT_MAX)),
                std::memory_order_relaxed);
}

void forget_parked_in(unsigned first, unsigned last) {
  int parked = g_parked.load(std::memory_order_relaxed);
  if (parked < 0 || static_cast<unsigned>(parked) < first || static_cast<unsigned>(parked) > last)
    return;
  if (g_parked.compare_exchange_strong(parked, -1, std::memory_order_acq_rel)) sys::close(parked);
}

}  // namespace cube::shim::placeholder
