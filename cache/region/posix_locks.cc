#include "cache/region/posix_locks.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <tuple>

#include "cache/base/clock.h"
#include "cache/base/file_io.h"
#include "cache/base/hash.h"
#include "cache/base/process/block_signals.h"
#include "cache/base/process/own_fds.h"
#include "cache/base/process/proc_fd_name.h"
#include "cache/base/unique_fd.h"

namespace cube::cache {

constinit std::atomic<std::uint32_t> g_kept_fds{0};

namespace {

namespace sys = base::sys;
using Counter = std::atomic<std::uint64_t>;

// The devices (each plus 1) of the files that the process has locked; 0: free.
constinit std::array<Counter, 16> g_devices{};
// The devices (each plus 1) whose locks /proc shows, because the kernel keeps these locks.
constinit std::array<Counter, 16> g_shown{};
// `all`: every device counts as noted, because there are more devices than entries.
enum class Noted : std::uint8_t { none, some, all };
constinit std::atomic<Noted> g_noted{Noted::none};

// The lower half of a counter counts the closes in progress, the upper half the closes that have
// ended. The orders are seq_cst: a thread that closes first counts the close and then asks about
// locks. A thread that locks first takes the lock and then checks the closes.
constexpr std::uint64_t k_ended = std::uint64_t{1} << 32;
// g_early: the closes that began before the process had taken any lock. The other counters: the
// closes of the files with the same hash.
constinit Counter g_early{0};
// The number of early closes that never end, because a handler has jumped out of them.
constinit std::atomic<std::uint32_t> g_left{0};
constinit std::array<Counter, 64> g_closes{};

// Fds that were left open: the fd in the lower half, the mark of its file in the upper half.
constinit std::array<Counter, 1024> g_kept{};

std::uint32_t going_on(const Counter& closes) {
  return static_cast<std::uint32_t>(closes.load(std::memory_order_seq_cst));
}

class Closing {
 public:
  explicit Closing(Counter& counter) : counter_(counter) {
    counter_.fetch_add(1, std::memory_order_seq_cst);
  }
  Closing(const Closing&) = delete;
  Closing& operator=(const Closing&) = delete;
  ~Closing() { counter_.fetch_add(k_ended - 1, std::memory_order_seq_cst); }

 private:
  Counter& counter_;
};

std::uint64_t hash_of(const FileStat& stat) { return base::hash_inode(stat.device(), stat.inode); }

Counter& counter_of(const FileStat& stat) { return g_closes[hash_of(stat) % g_closes.size()]; }

std::uint32_t mark_of(const FileStat& stat) {
  return static_cast<std::uint32_t>(hash_of(stat) >> 32) | 1;
}

std::uint64_t kept_word(int fd, const FileStat& stat) {
  return std::uint64_t{mark_of(stat)} << 32 | static_cast<std::uint32_t>(fd);
}

std::uint32_t mark_in(std::uint64_t kept) { return static_cast<std::uint32_t>(kept >> 32); }
int fd_in(std::uint64_t kept) { return static_cast<int>(static_cast<std::uint32_t>(kept)); }

// The file of an fd that was left open. Empty: the fd refers to another file by now.
std::optional<FileStat> kept_file(std::uint64_t kept) {
  if (kept == 0) return std::nullopt;
  const auto stat = stat_fd(fd_in(kept), AT_STATX_DONT_SYNC);
  return stat && kept_word(fd_in(kept), *stat) == kept ? std::optional(*stat) : std::nullopt;
}

bool has_row(const std::array<Counter, 16>& rows, std::uint64_t device) {
  return std::ranges::any_of(
      rows, [&](const Counter& row) { return row.load(std::memory_order_seq_cst) == device + 1; });
}

bool make_row(std::array<Counter, 16>& rows, std::uint64_t device) {
  return std::ranges::any_of(rows, [&](Counter& row) {
    std::uint64_t found = 0;
    return row.compare_exchange_strong(found, device + 1, std::memory_order_seq_cst) ||
           found == device + 1;
  });
}

bool is_noted(std::uint64_t device) {
  return g_noted.load(std::memory_order_seq_cst) == Noted::all || has_row(g_devices, device);
}

void note_device(std::uint64_t device) {
  Noted none = Noted::none;
  if (!make_row(g_devices, device)) {
    g_noted.store(Noted::all, std::memory_order_seq_cst);
  } else {
    g_noted.compare_exchange_strong(none, Noted::some, std::memory_order_seq_cst);
  }
}

// Calls visit(fd, stat) for each open regular file, until visit returns true. Returns true if visit
// has returned true, or if /proc is missing.
template <typename Visit>
bool is_any_file(Visit&& visit) {
  const auto directory = base::open_fd("/proc/thread-self/fd", O_RDONLY | O_DIRECTORY);
  alignas(8) std::array<std::byte, 1024> block;
  bool found = !directory;
  const auto entry = [&](const base::DirectoryEntry& named) {
    const std::string_view name = named.name;
    int fd = -1;
    if (found || std::from_chars(name.data(), name.data() + name.size(), fd).ec != std::errc{})
      return;
    const auto stat = stat_fd(fd, AT_STATX_DONT_SYNC);
    found = stat && stat->is_regular() && visit(fd, *stat);
  };
  return found || !base::visit_entries(directory->get(), block, entry) || found;
}

// Whether the process has taken a POSIX lock through this fd and still has it.
bool has_taken(int fd) {
  const base::ProcFdName name(fd, base::ProcFdName::Table::info_of_thread);
  char text[1024];
  const long n = sys::read_small_file(name.c_str(), text, sizeof text);
  return !sys::failed(n) && std::string_view(text, static_cast<std::size_t>(n)).find(": POSIX ") !=
                                std::string_view::npos;
}

// Whether the fd's file is on FUSE. A FUSE server may manage the locks itself, so that the kernel
// does not know them.
bool is_of_fuse(int fd) {
  struct ::statfs fs {};
  constexpr int k_fuse = 0x65735546;
  return !sys::failed(sys::raw(SYS_fstatfs, fd, sys::arg(&fs))) && fs.f_type == k_fuse;
}

enum class Holder : std::uint8_t { nobody, own, other, unknown };

// The holder of one of the locks on the file. The kernel is asked on behalf of this open file,
// which has no lock, so it also reports locks of this process.
Holder holder_of_one(int fd) {
  struct ::flock lock {};
  lock.l_type = F_WRLCK;
  if (sys::failed(sys::fcntl(fd, F_OFD_GETLK, reinterpret_cast<long>(&lock))))
    return Holder::unknown;
  return lock.l_type == F_UNLCK               ? Holder::nobody
         : lock.l_pid == sys::raw(SYS_getpid) ? Holder::own
                                              : Holder::other;
}

bool holds(int fd, const FileStat& stat) {
  const Holder one = holder_of_one(fd);
  if (one == Holder::nobody || one == Holder::own) return one == Holder::own;
  const bool is_hidden = is_of_fuse(fd) && !has_row(g_shown, stat.device());
  return is_hidden || is_any_file([&](int own, const FileStat& of_own) {
           return of_own.same_file(stat) && has_taken(own);
         });
}

void keep(int fd, const FileStat& stat) {
  g_kept_fds.fetch_add(1, std::memory_order_relaxed);
  const bool is_kept = std::ranges::any_of(g_kept, [&](Counter& row) {
    std::uint64_t free = 0;
    return row.compare_exchange_strong(free, kept_word(fd, stat), std::memory_order_acq_rel);
  });
  if (is_kept) return;
  g_kept_fds.fetch_sub(1, std::memory_order_relaxed);
  sys::fcntl(fd, F_SETFD, 0);
}

// Empties each row for whose word is_wanted(word) is true, and calls visit(word).
template <typename Wanted, typename Visit>
void take_kept(Wanted&& is_wanted, Visit&& visit) {
  for (Counter& row : g_kept) {
    std::uint64_t kept = row.load(std::memory_order_acquire);
    if (kept == 0 || !is_wanted(kept) ||
        !row.compare_exchange_strong(kept, 0, std::memory_order_acq_rel))
      continue;
    g_kept_fds.fetch_sub(1, std::memory_order_relaxed);
    visit(kept);
  }
}

void close_noted(int fd) {
  const base::BlockSignals block;
  const auto stat = stat_fd(fd, AT_STATX_DONT_SYNC);
  if (!stat) return static_cast<void>(sys::close(fd));
  const Closing closing(counter_of(*stat));
  if (is_noted(stat->device()) && holds(fd, *stat)) return keep(fd, *stat);
  sys::close(fd);
}

}  // namespace

PosixLocks::Closes::Closes(int fd) : counter_(&g_early), began_ns_(base::monotonic_ns()) {
  const auto stat = stat_fd(fd, AT_STATX_DONT_SYNC);
  if (!stat) return;
  counter_ = &counter_of(*stat);
  device_ = stat->device();
  note_device(*device_);
  while (going_on(g_early) > g_left.load(std::memory_order_relaxed)) {
    if (may_wait()) continue;
    g_left.store(going_on(g_early), std::memory_order_relaxed);
  }
}

void PosixLocks::Closes::look() { before_ = counter_->load(std::memory_order_seq_cst); }

bool PosixLocks::Closes::have_gone_on() {
  const bool have_rested = static_cast<std::uint32_t>(before_) == 0 &&
                           counter_->load(std::memory_order_seq_cst) == before_;
  return !have_rested && may_wait();
}

// Whether a close may wait for the server.
bool PosixLocks::Closes::may_wait() {
  constexpr std::uint64_t k_longest_ns = 2'000'000'000;
  sys::raw(SYS_sched_yield);
  return base::monotonic_ns() - began_ns_ < k_longest_ns;
}

void PosixLocks::Closes::note_taken(int fd) const {
  if (device_ && !has_row(g_shown, *device_) && has_taken(fd)) make_row(g_shown, *device_);
}

void PosixLocks::note_inherited() {
  is_any_file([](int fd, const FileStat& stat) {
    const bool may_have_taken =
        has_taken(fd) || (is_of_fuse(fd) && holder_of_one(fd) != Holder::nobody);
    if (may_have_taken) note_device(stat.device());
    return false;
  });
}

bool PosixLocks::may_hold_on_device(const FileStat& stat) {
  return g_noted.load(std::memory_order_relaxed) != Noted::none && is_noted(stat.device());
}

bool PosixLocks::may_hold(int fd) {
  if (g_noted.load(std::memory_order_relaxed) == Noted::none) return false;
  const auto stat = stat_fd(fd, AT_STATX_DONT_SYNC);
  return stat && is_noted(stat->device()) && holds(fd, *stat);
}

void PosixLocks::close(int fd) {
  // POSIX locks belong to an fd table, and the program's locks do not belong to this thread's
  // table.
  if (base::t_has_own_fds) return static_cast<void>(sys::close(fd));
  {
    const Closing closing(g_early);
    if (g_noted.load(std::memory_order_seq_cst) == Noted::none)
      return static_cast<void>(sys::close(fd));
  }
  close_noted(fd);
}

void PosixLocks::become_child() {
  g_early.store(0, std::memory_order_relaxed);
  g_left.store(0, std::memory_order_relaxed);
  for (Counter& closes : g_closes) closes.store(0, std::memory_order_relaxed);
  if (!is_any_kept()) return;
  take_kept([](std::uint64_t) { return true; },
            [](std::uint64_t kept) {
              if (kept_file(kept)) sys::close(fd_in(kept));
            });
  // Resets the count, because another thread of the parent may have incremented it without filling
  // a row.
  g_kept_fds.store(0, std::memory_order_relaxed);
}

std::uint32_t PosixLocks::kept_mark_slow(int fd) {
  const auto stat = stat_fd(fd, AT_STATX_DONT_SYNC);
  const bool is_any = stat && std::ranges::any_of(g_kept, [&](const Counter& row) {
                        return mark_in(row.load(std::memory_order_acquire)) == mark_of(*stat);
                      });
  return is_any ? mark_of(*stat) : 0;
}

void PosixLocks::close_kept_slow(std::uint32_t mark) {
  take_kept([&](std::uint64_t kept) { return mark_in(kept) == mark; },
            [](std::uint64_t kept) {
              if (kept_file(kept)) close_noted(fd_in(kept));
            });
}

void PosixLocks::forget_kept_slow(unsigned first, unsigned last) {
  const auto is_in = [&](std::uint64_t kept) {
    const auto fd = static_cast<unsigned>(fd_in(kept));
    return fd >= first && fd <= last;
  };
  take_kept(is_in, [](std::uint64_t) {});
}

void PosixLocks::keep_over_exec() {
  for (Counter& row : g_kept) {
    const std::uint64_t kept = row.load(std::memory_order_acquire);
    const auto stat = kept_file(kept);
    if (stat && holds(fd_in(kept), *stat)) sys::fcntl(fd_in(kept), F_SETFD, 0);
  }
}

}  // namespace cube::cache
