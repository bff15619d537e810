#include "prefetch/work/block_reader.h"

#include <algorithm>
#include <cerrno>
#include <optional>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/base/process/sandbox.h"
#include "cache/base/unique_fd.h"
#include "prefetch/threads/thread_trial.h"

namespace cube::prefetch {
namespace {

constexpr unsigned k_threads = 4;
// The pause between two looks at what the kernel has of mapped files. It lasts at least
// k_least_pause_ns, and k_pause_for_each times as long as the look took. The time spent on copying
// extends it to k_most_pause_ns at most. A look that has taken longer than k_longest_look_ns leaves
// the other mappings to the next look.
constexpr std::uint64_t k_least_pause_ns = 100'000'000, k_most_pause_ns = 2'000'000'000,
                        k_pause_for_each = 20;
constexpr std::uint64_t k_longest_look_ns = 50'000'000;
constexpr std::uint64_t k_start_patience_ns = 100'000'000;
constexpr const char* k_without = "large files are not read ahead";

// Whether the kernel or a sandbox refuses the call as such, independent of its arguments.
bool is_refusal(int error) { return error == EPERM || error == EACCES || error == ENOSYS; }

}  // namespace

BlockReader::BlockReader(cache::FileCache& cache, FdOf fd_of, bool is_sandboxed)
    : ThreadCrew({.without = k_without, .nice = is_sandboxed ? 0 : 1}),
      cache_(cache),
      fd_of_(fd_of),
      is_sandboxed_(is_sandboxed),
      opens_by_itself_(is_sandboxed) {}

// A copy of the program's own fd; empty if that fd does not lead to the file any more.
base::UniqueFd BlockReader::copy_of(const HostFds& own, const LargeFile& file, int fd,
                                    LargeFile::FdEpoch fd_epoch) {
  if (fd_epoch != file.fd_epoch()) return {};
  auto copy = own.copy_of(fd);
  if (!copy) {
    const int error = copy.error().value;
    // The fd may be closed by now.
    if (is_refusal(error)) {
      open_from_now_on("pidfd_getfd", error);
    } else if (error != EBADF) {
      tell("pidfd_getfd", error);
    }
    return {};
  }
  // If no fd has left the file in between, the copied fd was the file's.
  return fd_epoch == file.fd_epoch() ? std::move(*copy) : base::UniqueFd();
}

// A copy of an fd of the file. The range's own fd may have left it: some programs read through a
// copy of an fd that they close at once (numpy.fromfile).
base::UniqueFd BlockReader::copy_for(const HostFds& own, Waiting& range) {
  base::UniqueFd copy =
      range.fd >= 0 ? copy_of(own, *range.file, range.fd, range.fd_epoch) : base::UniqueFd();
  constexpr int k_tries = 3;
  for (int i = 0; i < k_tries && !copy; ++i) {
    // First the epoch, then the fd: if that fd leaves the file, the epoch changes.
    range.fd_epoch = range.file->fd_epoch();
    range.fd = fd_of_(*range.file);
    if (range.fd < 0) break;
    copy = copy_of(own, *range.file, range.fd, range.fd_epoch);
  }
  return copy;
}

// The thread's own open file; negative: there is none, or no fd of the program leads to the file
// any more.
int BlockReader::opened_for(LargeFile& file, OwnOpen& opened, LargeFile::FdEpoch& fd_epoch) {
  fd_epoch = file.fd_epoch();
  if (fd_of_(file) < 0) {
    opened.drop();
  } else if (opened.file != &file) {
    opened.take(file);
  }
  return opened.fd.get();
}

void BlockReader::fetch(LargeFile& file, int fd, LargeFile::FdEpoch fd_epoch,
                        const LargeFile::Range& range) {
  while (!cache_.large().fetch_ahead(file, fd, fd_epoch, range)) {
    const LargeFile::FdEpoch now = file.fd_epoch();
    // Try again only if one of the file's fds was closed in between, and others are left. A locked
    // file is given up, because its close waits for our copy.
    if (now == fd_epoch || file.is_locked() || is_stopping() || fd_of_(file) < 0) return;
    fd_epoch = now;
  }
}

void BlockReader::open_from_now_on(const char* call, int error) {
  if (opens_by_itself_.exchange(true, std::memory_order_relaxed)) return;
  base::log(base::LogLevel::info, "large files are opened once more to be read ahead: {}: {}", call,
            base::text_of_error(error));
}

// Fetches one block of a waiting range. False: none waits.
bool BlockReader::take_turn(const HostFds* own, OwnOpen& opened) {
  Waiting* const range = claim_any(waiting_, ClaimedRow::Is::filled);
  if (range == nullptr) {
    opened.drop();
    return false;
  }
  LargeFile& file = *range->file->share();
  const std::uint64_t block = cache_.large().block();
  const LargeFile::Range rest = range->rest;
  const bool copies = own != nullptr && !opens_by_itself_.load(std::memory_order_relaxed);
  base::UniqueFd copy;
  if (copies) {
    file.copies().begin();
    copy = copy_for(*own, *range);
  }
  // copy_of() logs the first refusal itself.
  const bool opens = !copy && opens_by_itself_.load(std::memory_order_relaxed);
  const int fd = opens ? opened_for(file, opened, range->fd_epoch) : copy.get();
  const LargeFile::FdEpoch fd_epoch = range->fd_epoch;
  range->rest.begin = (rest.begin / block + 1) * block;
  // The rest of the range would be tried block by block, in vain.
  const bool has_no_room = !rest.passes && !LargeFile::may_have_room();
  const bool is_last = fd < 0 || has_no_room || range->rest.is_empty();
  if (is_last) range->file->end();
  range->put_back(is_last ? ClaimedRow::Is::free : ClaimedRow::Is::filled);
  if (!is_last) news_.notify();
  if (fd >= 0 && !has_no_room) fetch(file, fd, fd_epoch, rest);
  copy.reset();
  if (copies) file.copies().end();
  file.end();
  return true;
}

// The caller owns the row.
void BlockReader::drop(Mapped& row) {
  LargeFile& file = *row.file;
  row.own.reset();
  file.own_mappings().end();
  file.end();
  mappings_.fetch_sub(1, std::memory_order_relaxed);
  row.put_back(ClaimedRow::Is::free);
}

// Gives up ownership of the row.
void BlockReader::give_back(Mapped& row) {
  LargeFile& file = *row.file;
  row.put_back(ClaimedRow::Is::filled);
  // A thread that locked the file meanwhile found the row in use.
  if (file.is_locked()) drop_mappings_of(file);
}

void BlockReader::drop_mappings_of(const LargeFile& file) {
  for (Mapped& row : mapped_) {
    if (!row.claim(ClaimedRow::Is::filled)) continue;
    if (row.file == &file) {
      drop(row);
    } else {
      row.put_back(ClaimedRow::Is::filled);
    }
  }
}

// Copies the bytes of the mapping that the kernel has. Returns how many there were.
std::uint64_t BlockReader::keep(Mapped& row, int region_fd) {
  if (!row.claim(ClaimedRow::Is::filled)) return 0;
  // If the program left the mapping before this look, the look is the last one.
  const bool is_last = row.is_left.load(std::memory_order_acquire);
  const auto kept = cache_.large().keep_pages(*row.file, row.own, row.begin, region_fd);
  if (kept) {
    if (is_last && !row.has_lost_pages.load(std::memory_order_relaxed))
      cache_.large().note_watched();
    const std::uint64_t old = std::min(row.before, *kept);
    row.before -= old;
    if (*kept != old) cache_.large().note_faulted(*kept - old);
  }
  is_last || !kept || is_stopping() ? drop(row) : give_back(row);
  return kept.value_or(0);
}

// Drops a mapping that the program has left, without a look.
void BlockReader::drop_left(Mapped& row) {
  if (row.is_left.load(std::memory_order_acquire) && row.claim(ClaimedRow::Is::filled)) drop(row);
}

// A look goes through all pages of a mapping, which may be of a huge file, so looks may take only a
// small share of the time.
void BlockReader::look_at_mapped() {
  if (mappings_.load(std::memory_order_relaxed) == 0 ||
      is_keeping_.exchange(true, std::memory_order_acquire))
    return;
  const std::uint64_t began = base::monotonic_ns(),
                      earliest = earliest_keep_ns_.load(std::memory_order_relaxed);
  if (began < earliest) {
    if (began >= next_keep_ns_.load(std::memory_order_relaxed)) {
      for (Mapped& row : mapped_) drop_left(row);
      next_keep_ns_.store(earliest, std::memory_order_relaxed);
    }
  } else if (began >= next_keep_ns_.load(std::memory_order_relaxed)) {
    // Each byte is copied once, in less than a nanosecond: the rest of the time is the check.
    std::uint64_t kept = 0, took = 0, looked = 0;
    const auto region_fd = cache_.region().reopen(O_RDWR);
    const std::size_t first = first_to_keep_;
    for (std::size_t i = 0; i < std::size(mapped_); ++i) {
      const std::size_t at = (first + i) % std::size(mapped_);
      if (looked > k_longest_look_ns) {
        drop_left(mapped_[at]);
        continue;
      }
      kept += region_fd ? keep(mapped_[at], region_fd->get()) : 0;
      took = base::monotonic_ns() - began;
      looked = took - std::min(took, kept);
      first_to_keep_ = (at + 1) % std::size(mapped_);
    }
    const std::uint64_t share = looked * k_pause_for_each;
    const std::uint64_t pause = took * (kept != 0 ? k_pause_for_each : 2 * k_pause_for_each);
    earliest_keep_ns_.store(began + took + share, std::memory_order_relaxed);
    next_keep_ns_.store(
        began + took + std::max(share, std::clamp(pause, k_least_pause_ns, k_most_pause_ns)),
        std::memory_order_relaxed);
  }
  is_keeping_.store(false, std::memory_order_release);
}

std::uint64_t BlockReader::pause_ns() const {
  if (mappings_.load(std::memory_order_relaxed) == 0) return UINT64_MAX;
  const std::uint64_t now = base::monotonic_ns(),
                      due = next_keep_ns_.load(std::memory_order_relaxed);
  return due > now ? due - now : k_least_pause_ns;
}

void BlockReader::work(unsigned) {
  std::optional<HostFds> own;
  OwnOpen opened;
  if (!is_sandboxed_) {
    auto opened_fds = HostFds::open();
    if (opened_fds) {
      own.emplace(std::move(*opened_fds));
    } else if (const int error = opened_fds.error().value; is_refusal(error)) {
      open_from_now_on("pidfd_open", error);
    } else {
      return tell("pidfd_open", error);
    }
  }
  while (!is_stopping()) {
    const std::uint32_t seen = news_.now();
    if (take_turn(own ? &*own : nullptr, opened)) continue;
    look_at_mapped();
    news_.wait(seen, pause_ns());
  }
}

bool BlockReader::may_be_tried() {
  return !base::may_be_sandboxed() || base::is_clone_known_to_be_allowed();
}

BlockReader* BlockReader::start(cache::FileCache& cache, FdOf fd_of) {
  const bool is_sandboxed = base::may_be_sandboxed();
  if (const int error = is_sandboxed ? try_calls_of_threads() : 0; error != 0) {
    base::log(base::LogLevel::info, "{} in a sandbox (seccomp): close_range: {}", k_without,
              error == k_killed ? "it kills" : base::text_of_error(error));
    return nullptr;
  }
  auto* const reader = ThreadCrew::start<BlockReader>(k_threads, cache, fd_of, is_sandboxed);
  // Once the threads have left the program's fd table, they hold none of the locks that it makes.
  if (reader != nullptr) reader->wait_for_tables(k_start_patience_ns);
  return reader;
}

bool BlockReader::submit(LargeFile& file, int fd, LargeFile::FdEpoch fd_epoch,
                         const LargeFile::Range& range) {
  Waiting* const free = claim_any(waiting_, ClaimedRow::Is::free);
  if (free == nullptr) return false;
  free->file = file.share();
  free->fd = fd;
  free->fd_epoch = fd_epoch;
  free->rest = range;
  free->put_back(ClaimedRow::Is::filled);
  news_.notify();
  return true;
}

bool BlockReader::keep_mapped(LargeFile& file, base::Mapping&& own, std::uint64_t begin,
                              const void* program_has, std::uint64_t before) {
  Mapped* const row = claim_any(mapped_, ClaimedRow::Is::free);
  if (row == nullptr) return false;
  row->file = file.share();
  row->own = std::move(own);
  row->begin = begin;
  row->before = before;
  const auto from = reinterpret_cast<std::uintptr_t>(program_has);
  row->from.store(from, std::memory_order_relaxed);
  row->to.store(from + row->own.size(), std::memory_order_relaxed);
  row->is_left.store(false, std::memory_order_relaxed);
  row->has_lost_pages.store(false, std::memory_order_relaxed);
  mappings_.fetch_add(1, std::memory_order_relaxed);
  give_back(*row);
  news_.notify();
  return true;
}

void BlockReader::let_go_of(LargeFile& file) {
  drop_mappings_of(file);
  // A thread may be using a mapping; it will see the lock.
  file.own_mappings().wait_for_none();
}

void BlockReader::opened(const LargeFile& file) {
  if (mappings_.load(std::memory_order_relaxed) == 0) return;
  for (Mapped& row : mapped_) {
    // A row that another thread changes is being looked at, or is new.
    const bool is_ours = row.claim(ClaimedRow::Is::filled);
    if (!is_ours || row.file->is_same_file(file))
      row.has_lost_pages.store(true, std::memory_order_relaxed);
    if (is_ours) give_back(row);
  }
}

void BlockReader::unmapped(const void* at, std::size_t length) {
  const auto from = reinterpret_cast<std::uintptr_t>(at);
  bool is_any = false;
  for (Mapped& row : mapped_) {
    if (row.state() == ClaimedRow::Is::free) continue;
    if (from >= row.to.load(std::memory_order_relaxed) ||
        from + length <= row.from.load(std::memory_order_relaxed))
      continue;
    is_any |= !row.is_left.exchange(true, std::memory_order_acq_rel);
  }
  if (!is_any) return;
  // If a look is due in a moment, wait for it.
  const std::uint64_t earliest = earliest_keep_ns_.load(std::memory_order_relaxed);
  const bool is_soon = earliest <= base::monotonic_ns() + k_least_pause_ns;
  next_keep_ns_.store(is_soon ? earliest : 0, std::memory_order_relaxed);
  news_.notify();
}

void BlockReader::stop(unsigned patience_ms) {
  ThreadCrew::stop(patience_ms);
  // A row in use belongs to a thread that hangs.
  while (Waiting* const range = claim_any(waiting_, ClaimedRow::Is::filled)) range->file->end();
  while (Mapped* const row = claim_any(mapped_, ClaimedRow::Is::filled)) drop(*row);
}

void BlockReader::forget() {
  for (Waiting& range : waiting_) {
    if (range.state() == ClaimedRow::Is::filled) range.file->end();
  }
  for (Mapped& row : mapped_) {
    // The child does not have the mapping (MADV_DONTFORK).
    row.own.forget();
    if (row.state() == ClaimedRow::Is::filled) row.file->end();
  }
}

}  // namespace cube::prefetch
