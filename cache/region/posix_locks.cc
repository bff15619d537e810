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

constinit std::atomic<std::uint32_t> g_noted_fds{0};

namespace {

namespace sys = base::sys;
using Counter = std::atomic<std::uint64_t>;

// The devices (each plus 1) on which the process has locked files. 0: the entry is free.
constinit std::array<Counter, 16> g_devices{};
// The devices (each plus 1) on which the kernel keeps the locks itself, so that /proc shows them.
constinit std::array<Counter, 16> g_shown{};
// `all`: every device counts as noted, because there are more devices than entries.
enum class Noted : std::uint8_t { none, some, all };
constinit std::atomic<Noted> g_noted{Noted::none};

// The lower half of a counter counts closes in progress, the upper half counts closes that have
// ended. All accesses are seq_cst. A thread that closes an fd first counts the close, then asks
// about locks. A thread that takes a lock first takes the lock, then checks the closes. So at least
// one of the two threads notices the other.
constexpr std::uint64_t k_ended = std::uint64_t{1} << 32;
// g_early counts closes that began before the process had taken any lock. Each counter in g_closes
// counts the closes of all files whose hash selects it.
constinit Counter g_early{0};
// The number of early closes that never end, because a handler has jumped out of them.
constinit std::atomic<std::uint32_t> g_left{0};
constinit std::array<Counter, 64> g_closes{};

// Fds that were left open. The lower half of a word is the fd, the upper half is the mark of its
// file.
constinit std::array<Counter, 1024> g_kept{};
// Locks that /proc does not show. The words have the same form as in g_kept, with the fd through
// which the lock was taken.
constinit std::array<Counter, 256> g_hidden{};
// Set if g_hidden had no room for such a lock.
constinit std::atomic<bool> g_hides_more{false};

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

std::uint64_t noted_word(int fd, const FileStat& stat) {
  return std::uint64_t{mark_of(stat)} << 32 | static_cast<std::uint32_t>(fd);
}

std::uint32_t mark_in(std::uint64_t noted) { return static_cast<std::uint32_t>(noted >> 32); }
int fd_in(std::uint64_t noted) { return static_cast<int>(static_cast<std::uint32_t>(noted)); }

// The file of a noted fd. Empty: by now, the fd is closed or refers to another file.
std::optional<FileStat> noted_file(std::uint64_t noted) {
  if (noted == 0) return std::nullopt;
  const auto stat = stat_fd(fd_in(noted), AT_STATX_DONT_SYNC);
  return stat && noted_word(fd_in(noted), *stat) == noted ? std::optional(*stat) : std::nullopt;
}

template <std::size_t k_size>
bool note_fd(std::array<Counter, k_size>& rows, std::uint64_t word) {
  g_noted_fds.fetch_add(1, std::memory_order_relaxed);
  const bool is_noted = std::ranges::any_of(rows, [&](Counter& row) {
    std::uint64_t free = 0;
    return row.compare_exchange_strong(free, word, std::memory_order_seq_cst);
  });
  if (!is_noted) g_noted_fds.fetch_sub(1, std::memory_order_relaxed);
  return is_noted;
}

// For each word for which is_wanted(word) is true: empties the word's row, then calls visit(word).
template <std::size_t k_size, typename Wanted, typename Visit>
void take_noted(std::array<Counter, k_size>& rows, Wanted&& is_wanted, Visit&& visit) {
  for (Counter& row : rows) {
    std::uint64_t noted = row.load(std::memory_order_acquire);
    if (noted == 0 || !is_wanted(noted) ||
        !row.compare_exchange_strong(noted, 0, std::memory_order_acq_rel))
      continue;
    g_noted_fds.fetch_sub(1, std::memory_order_relaxed);
    visit(noted);
  }
}

bool is_any(std::uint64_t) { return true; }
void only_forget(std::uint64_t) {}

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

// Calls visit(fd, stat) for each open regular file, until visit returns true. Returns whether visit
// has returned true. Also returns true if /proc cannot be read.
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

// Whether the fd's file is on FUSE. A FUSE server may manage locks itself, and the kernel then does
// not know these locks.
bool is_of_fuse(int fd) {
  struct ::statfs fs {};
  constexpr int k_fuse = 0x65735546;
  return !sys::failed(sys::raw(SYS_fstatfs, fd, sys::arg(&fs))) && fs.f_type == k_fuse;
}

enum class Holder : std::uint8_t { nobody, own, other, unknown };

// The holder of one of the locks on the file. F_OFD_GETLK asks on behalf of the open file, which
// has no lock itself. So the kernel also reports locks of this process.
Holder holder_of_one(int fd) {
  struct ::flock lock {};
  lock.l_type = F_WRLCK;
  if (sys::failed(sys::fcntl(fd, F_OFD_GETLK, reinterpret_cast<long>(&lock))))
    return Holder::unknown;
  return lock.l_type == F_UNLCK               ? Holder::nobody
         : lock.l_pid == sys::raw(SYS_getpid) ? Holder::own
                                              : Holder::other;
}

void note_hidden(int fd, const FileStat& stat) {
  const std::uint64_t word = noted_word(fd, stat);
  const auto is_same = [&](const Counter& row) {
    return row.load(std::memory_order_seq_cst) == word;
  };
  if (std::ranges::any_of(g_hidden, is_same)) return;
  if (!note_fd(g_hidden, word)) g_hides_more.store(true, std::memory_order_seq_cst);
}

bool has_taken_hidden(const FileStat& stat) {
  return g_hides_more.load(std::memory_order_seq_cst) ||
         std::ranges::any_of(g_hidden, [&](const Counter& row) {
           const std::uint64_t noted = row.load(std::memory_order_seq_cst);
           return mark_in(noted) == mark_of(stat) && noted_file(noted);
         });
}

bool holds(int fd, const FileStat& stat) {
  const Holder one = holder_of_one(fd);
  if (one == Holder::nobody || one == Holder::own) return one == Holder::own;
  if (is_of_fuse(fd) && !has_row(g_shown, stat.device())) return has_taken_hidden(stat);
  return is_any_file(
      [&](int own, const FileStat& of_own) { return of_own.same_file(stat) && has_taken(own); });
}

void keep(int fd, const FileStat& stat) {
  if (!note_fd(g_kept, noted_word(fd, stat))) sys::fcntl(fd, F_SETFD, 0);
}

void close_noted(int fd) {
  const base::BlockSignals block;
  const auto stat = stat_fd(fd, AT_STATX_DONT_SYNC);
  if (!stat) return static_cast<void>(sys::close(fd));
  const Closing closing(counter_of(*stat));
  if (is_noted(stat->device()) && holds(fd, *stat)) return keep(fd, *stat);
  sys::close(fd);
}

std::uint32_t kept_mark_of(const FileStat& stat) {
  const std::uint32_t mark = mark_of(stat);
  const bool has_kept = std::ranges::any_of(g_kept, [&](const Counter& row) {
    return mark_in(row.load(std::memory_order_acquire)) == mark;
  });
  return has_kept ? mark : 0;
}

void close_again(std::uint64_t kept) {
  if (noted_file(kept)) close_noted(fd_in(kept));
}

}  // namespace

PosixLocks::Closes::Closes(int fd) : counter_(&g_early), began_ns_(base::monotonic_ns()) {
  const auto stat = stat_fd(fd, AT_STATX_DONT_SYNC);
  if (!stat) return;
  counter_ = &counter_of(*stat);
  stat_ = *stat;
  note_device(stat->device());
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

// Yields the processor. Returns whether the caller may continue to wait for a close, which can
// itself wait for a server.
bool PosixLocks::Closes::may_wait() {
  constexpr std::uint64_t k_longest_ns = 2'000'000'000;
  sys::raw(SYS_sched_yield);
  return base::monotonic_ns() - began_ns_ < k_longest_ns;
}

void PosixLocks::Closes::note_taken(int fd) const {
  if (!stat_ || has_row(g_shown, stat_->device())) return;
  const bool is_shown = has_taken(fd) && make_row(g_shown, stat_->device());
  if (!is_shown && is_of_fuse(fd)) note_hidden(fd, *stat_);
}

void PosixLocks::note_inherited() {
  is_any_file([](int fd, const FileStat& stat) {
    if (has_taken(fd)) {
      note_device(stat.device());
      make_row(g_shown, stat.device());
    } else if (is_of_fuse(fd) && holder_of_one(fd) != Holder::nobody) {
      note_device(stat.device());
      note_hidden(fd, stat);
    }
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
  // POSIX locks belong to an fd table. A close in this thread's own table does not affect the
  // program's locks.
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
  g_hides_more.store(false, std::memory_order_relaxed);
  if (!is_any_noted()) return;
  take_noted(g_hidden, is_any, only_forget);
  take_noted(g_kept, is_any, [](std::uint64_t kept) {
    if (noted_file(kept)) sys::close(fd_in(kept));
  });
  // Resets the count, because at the fork, another thread of the parent may have incremented it,
  // but not filled a row yet.
  g_noted_fds.store(0, std::memory_order_relaxed);
}

std::uint32_t PosixLocks::kept_mark_slow(int fd) {
  const auto stat = stat_fd(fd, AT_STATX_DONT_SYNC);
  return stat ? kept_mark_of(*stat) : 0;
}

void PosixLocks::close_kept_slow(std::uint32_t mark) {
  take_noted(
      g_kept, [&](std::uint64_t kept) { return mark_in(kept) == mark; }, close_again);
}

void PosixLocks::close_all_kept_slow() { take_noted(g_kept, is_any, close_again); }

void PosixLocks::forget_slow(unsigned first, unsigned last) {
  const auto is_in = [&](std::uint64_t noted) {
    const auto fd = static_cast<unsigned>(fd_in(noted));
    return fd >= first && fd <= last;
  };
  take_noted(g_kept, is_in, only_forget);
  take_noted(g_hidden, is_in, only_forget);
}

std::uint32_t PosixLocks::forget_and_mark_slow(int fd) {
  forget_slow(static_cast<unsigned>(fd), static_cast<unsigned>(fd));
  // Closing an fd with O_PATH ends no lock.
  if (const long flags = sys::fcntl(fd, F_GETFL); sys::failed(flags) || (flags & O_PATH) != 0)
    return 0;
  const auto stat = stat_fd(fd, AT_STATX_DONT_SYNC);
  if (!stat) return 0;
  take_noted(
      g_hidden, [&](std::uint64_t noted) { return mark_in(noted) == mark_of(*stat); }, only_forget);
  return kept_mark_of(*stat);
}

void PosixLocks::keep_over_exec() {
  for (Counter& row : g_kept) {
    const std::uint64_t kept = row.load(std::memory_order_acquire);
    const auto stat = noted_file(kept);
    if (stat && holds(fd_in(kept), *stat)) sys::fcntl(fd_in(kept), F_SETFD, 0);
  }
}

}  // namespace cube::cache
