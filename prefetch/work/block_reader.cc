#include "prefetch/work/block_reader.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>
#include <optional>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/base/process/sandbox.h"
#include "cache/base/unique_fd.h"
#include "prefetch/threads/background_thread.h"
#include "prefetch/threads/event_count.h"
#include "prefetch/threads/host_fds.h"
#include "prefetch/threads/starter_traits.h"
#include "prefetch/threads/thread_trial.h"
#include "prefetch/work/own_open.h"

namespace cube::prefetch {
namespace {

using cache::LargeFile;

constexpr std::size_t k_threads = 4;
constexpr std::size_t k_waiting = 64, k_mapped = 64;
// The pause between two looks at what the kernel has of mapped files. It lasts at least
// k_least_pause_ns, and k_pause_for_each times as long as the look took. The time spent on copying
// extends it to k_most_pause_ns at most. A look that has taken longer than k_longest_look_ns leaves
// the other mappings to the next look.
constexpr std::uint64_t k_least_pause_ns = 100'000'000, k_most_pause_ns = 2'000'000'000,
                        k_pause_for_each = 20;
constexpr std::uint64_t k_longest_look_ns = 50'000'000;
constexpr std::size_t k_reader_stack = 128 << 10;
constexpr std::uint64_t k_start_patience_ns = 100'000'000;

// Whether the kernel or a sandbox refuses the call as such, whatever its arguments.
bool is_refusal(int error) { return error == EPERM || error == EACCES || error == ENOSYS; }

}  // namespace

// A range that waits for a thread. The thread that has set `state` to being_changed owns the plain
// fields.
struct BlockReader::Waiting {
  enum class State : std::uint32_t { free, being_changed, ready };
  std::atomic<State> state{State::free};
  LargeFile* file = nullptr;
  int fd = -1;
  LargeFile::FdEpoch fd_epoch = 0;
  LargeFile::Range rest;
};

// Bytes of a file that a program maps.
struct BlockReader::Mapped {
  enum class State : std::uint32_t { free, being_changed, mapped };
  std::atomic<State> state{State::free};
  // The program has unmapped it; set in any state.
  std::atomic<bool> is_left{false};
  // Pages that no look has seen may be gone; set in any state.
  std::atomic<bool> has_lost_pages{false};
  LargeFile* file = nullptr;
  base::Mapping own;
  std::uint64_t begin = 0;
  std::uint64_t before = 0;  // bytes that the kernel had at that time and no look has found yet
  // The addresses at which the program has mapped them.
  std::atomic<std::uintptr_t> from{0}, to{0};
};

struct BlockReader::State {
  State(cache::FileCache& of, FdOf find_fd, bool in_sandbox)
      : cache(of), fd_of(find_fd), is_sandboxed(in_sandbox), opens_by_itself(in_sandbox) {}

  cache::FileCache& cache;
  const FdOf fd_of;
  // A sandbox may kill for a call that the program's own reads do not make.
  const bool is_sandboxed;
  std::atomic<bool> opens_by_itself;  // copies of the program's fds are refused
  Waiting waiting[k_waiting];
  Mapped mapped[k_mapped];
  std::atomic<bool> is_keeping{false};  // a thread looks at the mappings
  std::size_t first_to_keep = 0;        // for that thread: the row at which the next look begins
  // base::monotonic_ns: the time of the next look, and the time before which mappings that the
  // program has left are dropped without a look.
  std::atomic<std::uint64_t> next_keep_ns{0}, earliest_keep_ns{0};
  std::atomic<std::uint32_t> mappings{0};
  EventCount news, over;
  std::atomic<bool> is_stopping{false};
  std::atomic<std::size_t> threads{0};
  // How many of these may still have the program's fds: a copy of its fd table keeps its files and
  // their locks.
  std::atomic<std::size_t> with_programs_fds{0};
  std::atomic<bool> is_told{false};

  void run();
  bool take_turn(const HostFds* own, OwnOpen& opened);
  void open_from_now_on(const char* call, int error);
  void tell_that_none(const char* call, int error);
  void keep_mapped();
  std::uint64_t keep(Mapped& row, int region_fd);
  void drop(Mapped& row);
  void drop_left(Mapped& row);
  void give_back(Mapped& row);
  void let_go_of(const LargeFile& file);
  std::uint64_t pause_ns() const;
  base::UniqueFd copy_of(const HostFds& own, const LargeFile& file, int fd,
                         LargeFile::FdEpoch fd_epoch);
  base::UniqueFd copy_for(const HostFds& own, Waiting& range);
  int opened_for(LargeFile& file, OwnOpen& opened, LargeFile::FdEpoch& fd_epoch);
  void fetch(LargeFile& file, int fd, LargeFile::FdEpoch fd_epoch, const LargeFile::Range& range);
};

// A copy of the program's own fd; empty if that fd does not lead to the file any more.
base::UniqueFd BlockReader::State::copy_of(const HostFds& own, const LargeFile& file, int fd,
                                           LargeFile::FdEpoch fd_epoch) {
  if (fd_epoch != file.fd_epoch()) return {};
  auto copy = own.copy_of(fd);
  if (!copy) {
    const int error = copy.error().value;
    // The fd may be closed by now.
    if (is_refusal(error)) {
      open_from_now_on("pidfd_getfd", error);
    } else if (error != EBADF) {
      tell_that_none("pidfd_getfd", error);
    }
    return {};
  }
  // If no fd has left the file meanwhile, the copied fd was the file's.
  return fd_epoch == file.fd_epoch() ? std::move(*copy) : base::UniqueFd();
}

// A copy of an fd of the file. The range's own fd may have left it: some programs read through a
// copy of an fd that they close at once (numpy.fromfile).
base::UniqueFd BlockReader::State::copy_for(const HostFds& own, Waiting& range) {
  base::UniqueFd copy =
      range.fd >= 0 ? copy_of(own, *range.file, range.fd, range.fd_epoch) : base::UniqueFd();
  constexpr int k_tries = 3;
  for (int i = 0; i < k_tries && !copy; ++i) {
    // First the epoch, then the fd: if that fd leaves the file, the epoch changes.
    range.fd_epoch = range.file->fd_epoch();
    range.fd = fd_of(*range.file);
    if (range.fd < 0) break;
    copy = copy_of(own, *range.file, range.fd, range.fd_epoch);
  }
  return copy;
}

// The thread's own open file; negative: there is none, or no fd of the program leads to the file
// any more.
int BlockReader::State::opened_for(LargeFile& file, OwnOpen& opened, LargeFile::FdEpoch& fd_epoch) {
  fd_epoch = file.fd_epoch();
  if (fd_of(file) < 0) {
    opened.drop();
  } else if (opened.file != &file) {
    opened.take(file);
  }
  return opened.fd.get();
}

void BlockReader::State::fetch(LargeFile& file, int fd, LargeFile::FdEpoch fd_epoch,
                               const LargeFile::Range& range) {
  while (!cache.large().fetch_ahead(file, fd, fd_epoch, range)) {
    const LargeFile::FdEpoch now = file.fd_epoch();
    // Continue only if an fd has left meanwhile: not in a locked file, whose close waits for our
    // copy, nor after the last fd, with which the file ends.
    if (now == fd_epoch || file.is_locked() || is_stopping.load(std::memory_order_acquire) ||
        fd_of(file) < 0)
      return;
    fd_epoch = now;
  }
}

void BlockReader::State::tell_that_none(const char* call, int error) {
  base::log(is_told.exchange(true) ? base::LogLevel::debug : base::LogLevel::info,
            "large files are not read ahead: {}: {}", call, base::text_of_error(error));
}

void BlockReader::State::open_from_now_on(const char* call, int error) {
  if (opens_by_itself.exchange(true, std::memory_order_relaxed)) return;
  base::log(base::LogLevel::info, "large files are opened once more to be read ahead: {}: {}", call,
            base::text_of_error(error));
}

// Fetches one block of a waiting range. False: none waits.
bool BlockReader::State::take_turn(const HostFds* own, OwnOpen& opened) {
  for (Waiting& range : waiting) {
    auto ready = Waiting::State::ready;
    if (!range.state.compare_exchange_strong(ready, Waiting::State::being_changed,
                                             std::memory_order_acquire))
      continue;
    LargeFile& file = *range.file->share();
    const std::uint64_t block = cache.large().block();
    const LargeFile::Range rest = range.rest;
    const bool copies = own != nullptr && !opens_by_itself.load(std::memory_order_relaxed);
    base::UniqueFd copy;
    if (copies) {
      file.copies().begin();
      copy = copy_for(*own, range);
    }
    // copy_of() logs the first refusal itself.
    const bool opens = !copy && opens_by_itself.load(std::memory_order_relaxed);
    const int fd = opens ? opened_for(file, opened, range.fd_epoch) : copy.get();
    const LargeFile::FdEpoch fd_epoch = range.fd_epoch;
    range.rest.begin = (rest.begin / block + 1) * block;
    // The rest of the range would be tried block by block, in vain.
    const bool has_no_room = !rest.passes && !LargeFile::may_have_room();
    const bool is_last = fd < 0 || has_no_room || range.rest.is_empty();
    if (is_last) range.file->end();
    range.state.store(is_last ? Waiting::State::free : Waiting::State::ready,
                      std::memory_order_release);
    if (!is_last) news.notify();
    if (fd >= 0 && !has_no_room) fetch(file, fd, fd_epoch, rest);
    copy.reset();
    if (copies) file.copies().end();
    file.end();
    return true;
  }
  opened.drop();
  return false;
}

// The caller owns the row.
void BlockReader::State::drop(Mapped& row) {
  LargeFile& file = *row.file;
  row.own.reset();
  file.own_mappings().end();
  file.end();
  mappings.fetch_sub(1, std::memory_order_relaxed);
  row.state.store(Mapped::State::free, std::memory_order_release);
}

// Gives up ownership of the row.
void BlockReader::State::give_back(Mapped& row) {
  LargeFile& file = *row.file;
  row.state.store(Mapped::State::mapped, std::memory_order_seq_cst);
  // A thread that locked the file meanwhile found the row in use.
  if (file.is_locked()) let_go_of(file);
}

void BlockReader::State::let_go_of(const LargeFile& file) {
  for (Mapped& row : mapped) {
    auto is = Mapped::State::mapped;
    if (!row.state.compare_exchange_strong(is, Mapped::State::being_changed,
                                           std::memory_order_seq_cst))
      continue;
    if (row.file == &file) {
      drop(row);
    } else {
      row.state.store(Mapped::State::mapped, std::memory_order_release);
    }
  }
}

// Copies the bytes of the mapping that the kernel has. Returns how many there were.
std::uint64_t BlockReader::State::keep(Mapped& row, int region_fd) {
  auto is = Mapped::State::mapped;
  if (!row.state.compare_exchange_strong(is, Mapped::State::being_changed,
                                         std::memory_order_acquire))
    return 0;
  // If the program left the mapping before this look, the look is the last one.
  const bool is_last = row.is_left.load(std::memory_order_acquire);
  const auto kept = cache.large().keep_pages(*row.file, row.own, row.begin, region_fd);
  if (kept) {
    if (is_last && !row.has_lost_pages.load(std::memory_order_relaxed))
      cache.large().note_watched();
    const std::uint64_t old = std::min(row.before, *kept);
    row.before -= old;
    if (*kept != old) cache.large().note_faulted(*kept - old);
  }
  if (is_last || !kept || is_stopping.load(std::memory_order_acquire)) {
    drop(row);
  } else {
    give_back(row);
  }
  return kept.value_or(0);
}

// Drops a mapping that the program has left, without a look.
void BlockReader::State::drop_left(Mapped& row) {
  auto is = Mapped::State::mapped;
  if (!row.is_left.load(std::memory_order_acquire)) return;
  if (row.state.compare_exchange_strong(is, Mapped::State::being_changed,
                                        std::memory_order_acquire))
    drop(row);
}

// A look goes through all pages of a mapping, which may be of a huge file, so looks may take only a
// small share of the time.
void BlockReader::State::keep_mapped() {
  if (mappings.load(std::memory_order_relaxed) == 0 ||
      is_keeping.exchange(true, std::memory_order_acquire))
    return;
  const std::uint64_t began = base::monotonic_ns(),
                      earliest = earliest_keep_ns.load(std::memory_order_relaxed);
  if (began < earliest) {
    if (began >= next_keep_ns.load(std::memory_order_relaxed)) {
      for (Mapped& row : mapped) drop_left(row);
      next_keep_ns.store(earliest, std::memory_order_relaxed);
    }
  } else if (began >= next_keep_ns.load(std::memory_order_relaxed)) {
    // Each byte is copied once, in less than a nanosecond: the rest of the time is the look.
    std::uint64_t kept = 0, took = 0, looked = 0;
    const auto region_fd = cache.region().reopen(O_RDWR);
    const std::size_t first = first_to_keep;
    for (std::size_t i = 0; i < k_mapped; ++i) {
      Mapped& row = mapped[(first + i) % k_mapped];
      if (looked > k_longest_look_ns) {
        drop_left(row);
        continue;
      }
      kept += region_fd ? keep(row, region_fd->get()) : 0;
      took = base::monotonic_ns() - began;
      looked = took - std::min(took, kept);
      first_to_keep = (first + i + 1) % k_mapped;
    }
    const std::uint64_t share = looked * k_pause_for_each;
    const std::uint64_t pause = took * (kept != 0 ? k_pause_for_each : 2 * k_pause_for_each);
    earliest_keep_ns.store(began + took + share, std::memory_order_relaxed);
    next_keep_ns.store(
        began + took + std::max(share, std::clamp(pause, k_least_pause_ns, k_most_pause_ns)),
        std::memory_order_relaxed);
  }
  is_keeping.store(false, std::memory_order_release);
}

std::uint64_t BlockReader::State::pause_ns() const {
  if (mappings.load(std::memory_order_relaxed) == 0) return UINT64_MAX;
  const std::uint64_t now = base::monotonic_ns(),
                      due = next_keep_ns.load(std::memory_order_relaxed);
  return due > now ? due - now : k_least_pause_ns;
}

void BlockReader::State::run() {
  std::optional<HostFds> own;
  OwnOpen opened;
  if (!is_sandboxed) {
    lower_priority(1);
    auto opened_fds = HostFds::open();
    if (opened_fds) {
      own.emplace(std::move(*opened_fds));
    } else if (const int error = opened_fds.error().value; is_refusal(error)) {
      open_from_now_on("pidfd_open", error);
    } else {
      return tell_that_none("pidfd_open", error);
    }
  }
  while (!is_stopping.load(std::memory_order_acquire)) {
    const std::uint32_t seen = news.now();
    if (take_turn(own ? &*own : nullptr, opened)) continue;
    keep_mapped();
    news.wait(seen, pause_ns());
  }
}

bool BlockReader::may_be_tried() {
  return !base::may_be_sandboxed() || base::is_clone_known_to_be_allowed();
}

BlockReader* BlockReader::start(cache::FileCache& cache, FdOf fd_of) {
  const bool is_sandboxed = base::may_be_sandboxed();
  if (const int error = is_sandboxed ? try_calls_of_threads() : 0; error != 0) {
    base::log(base::LogLevel::info,
              "large files are not read ahead in a sandbox (seccomp): close_range: {}",
              error == k_killed ? "it kills" : base::text_of_error(error));
    return nullptr;
  }
  try {
    auto state = std::make_unique<State>(cache, fd_of, is_sandboxed);
    auto reader = std::unique_ptr<BlockReader>(new BlockReader(state.get()));
    const auto body = [](void* of) {
      auto& own = *static_cast<State*>(of);
      // Without a private fd table, the host could close what the thread reads.
      const auto table = take_private_fd_table();
      own.with_programs_fds.fetch_sub(1, std::memory_order_release);
      own.over.notify();
      if (!table) {
        own.tell_that_none("close_range(CLOSE_RANGE_UNSHARE)", table.error().value);
      } else {
        own.run();
      }
      own.threads.fetch_sub(1, std::memory_order_release);
      own.over.notify();
    };
    const bool may_change = may_change_traits();
    for (std::size_t i = 0; i < k_threads; ++i) {
      state->threads.fetch_add(1, std::memory_order_relaxed);
      state->with_programs_fds.fetch_add(1, std::memory_order_relaxed);
      const int error = start_background_thread(body, state.get(), k_reader_stack, may_change);
      if (error == 0) continue;
      state->with_programs_fds.fetch_sub(1, std::memory_order_relaxed);
      base::log(base::LogLevel::info, "large files are not read ahead: no thread: {}",
                base::text_of_error(error));
      if (state->threads.fetch_sub(1, std::memory_order_relaxed) == 1) return nullptr;
      break;
    }
    // Once the threads have left the program's fd table, they hold none of the locks that it makes.
    state->over.wait_until(
        [&] { return state->with_programs_fds.load(std::memory_order_acquire) == 0; },
        k_start_patience_ns);
    static_cast<void>(state.release());
    return reader.release();
  } catch (...) {
    return nullptr;
  }
}

bool BlockReader::submit(LargeFile& file, int fd, LargeFile::FdEpoch fd_epoch,
                         const LargeFile::Range& range) {
  for (Waiting& free : state_->waiting) {
    auto none = Waiting::State::free;
    if (!free.state.compare_exchange_strong(none, Waiting::State::being_changed,
                                            std::memory_order_acquire))
      continue;
    free.file = file.share();
    free.fd = fd;
    free.fd_epoch = fd_epoch;
    free.rest = range;
    free.state.store(Waiting::State::ready, std::memory_order_release);
    state_->news.notify();
    return true;
  }
  return false;
}

bool BlockReader::may_keep_mapped() const { return !state_->is_sandboxed; }

bool BlockReader::keep_mapped(LargeFile& file, base::Mapping&& own, std::uint64_t begin,
                              const void* program_has, std::uint64_t before) {
  for (Mapped& row : state_->mapped) {
    auto none = Mapped::State::free;
    if (!row.state.compare_exchange_strong(none, Mapped::State::being_changed,
                                           std::memory_order_acquire))
      continue;
    row.file = file.share();
    row.own = std::move(own);
    row.begin = begin;
    row.before = before;
    const auto from = reinterpret_cast<std::uintptr_t>(program_has);
    row.from.store(from, std::memory_order_relaxed);
    row.to.store(from + row.own.size(), std::memory_order_relaxed);
    row.is_left.store(false, std::memory_order_relaxed);
    row.has_lost_pages.store(false, std::memory_order_relaxed);
    state_->mappings.fetch_add(1, std::memory_order_relaxed);
    state_->give_back(row);
    state_->news.notify();
    return true;
  }
  return false;
}

void BlockReader::let_go_of(LargeFile& file) {
  state_->let_go_of(file);
  // A thread may be using a mapping; it will see the lock.
  file.own_mappings().wait_for_none();
}

void BlockReader::opened(const LargeFile& file) {
  if (state_->mappings.load(std::memory_order_relaxed) == 0) return;
  for (Mapped& row : state_->mapped) {
    auto is = Mapped::State::mapped;
    // A row that another thread changes is being looked at, or is new.
    if (!row.state.compare_exchange_strong(is, Mapped::State::being_changed,
                                           std::memory_order_seq_cst)) {
      row.has_lost_pages.store(true, std::memory_order_relaxed);
      continue;
    }
    if (row.file->is_same_file(file)) row.has_lost_pages.store(true, std::memory_order_relaxed);
    state_->give_back(row);
  }
}

void BlockReader::unmapped(const void* at, std::size_t length) {
  const auto from = reinterpret_cast<std::uintptr_t>(at);
  bool is_any = false;
  for (Mapped& row : state_->mapped) {
    if (row.state.load(std::memory_order_acquire) == Mapped::State::free) continue;
    if (from >= row.to.load(std::memory_order_relaxed) ||
        from + length <= row.from.load(std::memory_order_relaxed))
      continue;
    is_any |= !row.is_left.exchange(true, std::memory_order_acq_rel);
  }
  if (!is_any) return;
  // If a look is due in a moment, wait for it.
  const std::uint64_t earliest = state_->earliest_keep_ns.load(std::memory_order_relaxed);
  const bool is_soon = earliest <= base::monotonic_ns() + k_least_pause_ns;
  state_->next_keep_ns.store(is_soon ? earliest : 0, std::memory_order_relaxed);
  state_->news.notify();
}

void BlockReader::stop(unsigned patience_ms) {
  State& state = *state_;
  state.is_stopping.store(true, std::memory_order_release);
  state.news.notify();
  state.over.wait_until([&] { return state.threads.load(std::memory_order_acquire) == 0; },
                        patience_ms * base::k_ns_per_ms);
  for (Waiting& range : state_->waiting) {
    auto ready = Waiting::State::ready;
    if (range.state.compare_exchange_strong(ready, Waiting::State::being_changed,
                                            std::memory_order_acquire))
      range.file->end();
  }
  // A row in use belongs to a thread that hangs.
  for (Mapped& row : state_->mapped) {
    auto is = Mapped::State::mapped;
    if (row.state.compare_exchange_strong(is, Mapped::State::being_changed,
                                          std::memory_order_acquire))
      state_->drop(row);
  }
}

void BlockReader::forget() {
  for (Waiting& range : state_->waiting) {
    if (range.state.load(std::memory_order_relaxed) == Waiting::State::ready) range.file->end();
  }
  for (Mapped& row : state_->mapped) {
    // The child does not have the mapping (MADV_DONTFORK).
    row.own.forget();
    if (row.state.load(std::memory_order_relaxed) == Mapped::State::mapped) row.file->end();
  }
}

}  // namespace cube::prefetch
