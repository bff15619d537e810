#include "prefetch/work/block_reader.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <optional>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/base/process/sandbox.h"
#include "cache/base/unique_fd.h"
#include "prefetch/threads/thread_trial.h"

namespace cube::prefetch {
namespace {

constexpr unsigned k_threads = 4;
constexpr std::uint64_t k_start_patience_ns = 100'000'000;
constexpr const char* k_without = "large files are not read ahead";

// Returns true if the kernel or a sandbox refuses the call with any arguments.
bool is_refusal(int error) { return error == EPERM || error == EACCES || error == ENOSYS; }

}  // namespace

BlockReader::BlockReader(cache::FileCache& cache, FdOf fd_of, bool is_sandboxed)
    : ThreadCrew({.without = k_without, .nice = is_sandboxed ? 0 : 1}),
      cache_(cache),
      fd_of_(fd_of),
      is_sandboxed_(is_sandboxed),
      opens_by_itself_(is_sandboxed),
      mapped_(cache, news_, is_stopping_) {}

// Returns a copy of the program's fd; empty if this fd no longer refers to the file.
base::UniqueFd BlockReader::copy_of(const HostFds& own, const LargeFile& file, int fd,
                                    LargeFile::FdsLeft fds_left) {
  if (fds_left != file.fds_left()) return {};
  auto copy = own.copy_of(fd);
  if (!copy) {
    const int error = copy.error().value;
    // EBADF: the fd was closed in between.
    if (is_refusal(error)) {
      open_from_now_on("pidfd_getfd", error);
    } else if (error != EBADF) {
      tell("pidfd_getfd", error);
    }
    return {};
  }
  // If no fd of the file was closed in between, the copied fd referred to the file.
  return fds_left == file.fds_left() ? std::move(*copy) : base::UniqueFd();
}

// Returns a copy of an fd of the file. The range's own fd might be closed: some programs read
// through a copy of an fd and close the copy right afterwards (numpy.fromfile).
base::UniqueFd BlockReader::copy_for(const HostFds& own, Waiting& range) {
  base::UniqueFd copy =
      range.fd >= 0 ? copy_of(own, *range.file, range.fd, range.fds_left) : base::UniqueFd();
  constexpr int k_tries = 3;
  for (int i = 0; i < k_tries && !copy; ++i) {
    // fds_left() is loaded before the fd: if the fd is closed or replaced afterwards, fds_left()
    // changes.
    range.fds_left = range.file->fds_left();
    range.fd = fd_of_(*range.file);
    if (range.fd < 0) break;
    copy = copy_of(own, *range.file, range.fd, range.fds_left);
  }
  return copy;
}

// Returns the thread's own fd of the file. Negative if there is none, or if no fd of the program
// refers to the file any longer.
int BlockReader::opened_for(LargeFile& file, OwnOpen& opened, LargeFile::FdsLeft& fds_left,
                            bool outlives_fds) {
  fds_left = file.fds_left();
  if (!outlives_fds && fd_of_(file) < 0) {
    opened.drop();
  } else if (opened.file != &file) {
    opened.take(file);
    // The kernel must not read ahead, because the other threads read the next blocks.
    if (outlives_fds && opened.fd)
      base::sys::raw(SYS_fadvise64, opened.fd.get(), 0, 0, POSIX_FADV_RANDOM);
  }
  return opened.fd.get();
}

void BlockReader::fetch(LargeFile& file, int fd, LargeFile::FdsLeft fds_left,
                        const LargeFile::Range& range, bool outlives_fds) {
  while (!cache_.large().fetch_ahead(file, fd, fds_left, range)) {
    const LargeFile::FdsLeft now = file.fds_left();
    // Tries again only if an fd of the file was closed in between and another fd is left. A locked
    // file is given up, because its close waits for our copy.
    if (now == fds_left || file.is_locked() || is_stopping() || (!outlives_fds && fd_of_(file) < 0))
      return;
    fds_left = now;
  }
}

void BlockReader::open_from_now_on(const char* call, int error) {
  if (opens_by_itself_.exchange(true, std::memory_order_relaxed)) return;
  base::log(base::LogLevel::info, "large files are opened once more to be read ahead: {}: {}", call,
            base::text_of_error(error));
}

// Fetches one block of a waiting range. Returns false if no range waits.
bool BlockReader::take_turn(const HostFds* own, OwnOpen& opened) {
  Waiting* const range = claim_any(waiting_, ClaimedRow::Is::filled);
  if (range == nullptr) {
    // A row that another thread has claimed counts as in use.
    const auto is_free = [](const Waiting& row) { return row.state() == ClaimedRow::Is::free; };
    if (std::all_of(std::begin(waiting_), std::end(waiting_), is_free)) opened.drop();
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
  const bool outlives_fds = range->outlives_fds,
             opens = !copy && (outlives_fds || opens_by_itself_.load(std::memory_order_relaxed));
  const int fd = opens ? opened_for(file, opened, range->fds_left, outlives_fds) : copy.get();
  const LargeFile::FdsLeft fds_left = range->fds_left;
  range->rest.begin = (rest.begin / block + 1) * block;
  // Ends the range if there is no room: each further block would be tried in vain.
  const bool has_no_room = !rest.passes && !LargeFile::may_have_room();
  const bool is_last = fd < 0 || has_no_room || range->rest.is_empty();
  if (is_last) range->file->end();
  range->put_back(is_last ? ClaimedRow::Is::free : ClaimedRow::Is::filled);
  // After the last block, the other threads must drop their open files.
  if (!is_last || outlives_fds) news_.notify();
  if (fd >= 0 && !has_no_room) fetch(file, fd, fds_left, rest, opens && outlives_fds);
  copy.reset();
  if (copies) file.copies().end();
  file.end();
  return true;
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
    if (take_turn(own ? &*own : nullptr, opened) || mapped_.bring_part()) continue;
    mapped_.look();
    news_.wait(seen, mapped_.pause_ns());
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
  // Waits until the threads have left the program's fd table. After that, they share no lock with
  // the program.
  if (reader != nullptr) reader->wait_for_tables(k_start_patience_ns);
  return reader;
}

bool BlockReader::put(LargeFile& file, int fd, LargeFile::FdsLeft fds_left,
                      const LargeFile::Range& range, bool outlives_fds) {
  Waiting* const free = claim_any(waiting_, ClaimedRow::Is::free);
  if (free == nullptr) return false;
  free->file = file.share();
  free->fd = fd;
  free->fds_left = fds_left;
  free->rest = range;
  free->outlives_fds = outlives_fds;
  free->put_back(ClaimedRow::Is::filled);
  news_.notify();
  return true;
}

void BlockReader::stop(unsigned patience_ms) {
  ThreadCrew::stop(patience_ms);
  // A row that is still in use belongs to a thread that hangs.
  while (Waiting* const range = claim_any(waiting_, ClaimedRow::Is::filled)) range->file->end();
  mapped_.drop_all();
}

void BlockReader::forget() {
  for (Waiting& range : waiting_) {
    if (range.state() == ClaimedRow::Is::filled) range.file->end();
  }
  mapped_.forget();
}

}  // namespace cube::prefetch
