#include "prefetch/work/large_fetcher.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <mutex>
#include <utility>

#include "cache/base/clock.h"
#include "prefetch/engine/whole_file.h"

namespace cube::prefetch {
namespace {

using Outcome = LargeFetch::Ending;

// Requests for parts of one file share an open file if the file was opened no longer ago than this.
constexpr std::uint64_t k_shared_ns = 1'000'000'000;
// Blocks that another process was fetching in the first pass are tried a second time.
constexpr int k_passes = 2;

std::uint64_t bytes_of(const cache::LargeFile::Range& range) {
  return range.is_empty() ? 0 : range.end - range.begin;
}

}  // namespace

LargeFetcher::LargeFetcher(cache::FileCache& cache, LargeClient& client, int nice,
                           bool asks_for_blocks)
    : ThreadCrew({.without = "large files are not prefetched", .nice = nice, .shares_table = true}),
      cache_(cache),
      client_(client),
      asks_for_blocks_(asks_for_blocks) {}

void LargeFetcher::work(unsigned number) {
  if (number == 0) start_threads(k_threads - 1);
  keep_at_it(gates_[number]);
}

// Ends the current fetches and makes all later fetches fail.
void LargeFetcher::work_without_table(int error) {
  ThreadCrew::work_without_table(error);
  {
    const std::lock_guard lock(mutex_);
    cannot_run_ = true;
  }
  keep_at_it(gates_[0]);
}

void LargeFetcher::keep_at_it(CallbackGate& gate) {
  Lock lock(mutex_);
  while (!is_stopping()) {
    Row* const row =
        cannot_run_ || running_.load(std::memory_order_relaxed) < depth_ ? next_row() : nullptr;
    if (row == nullptr) {
      work_.wait(lock);
      continue;
    }
    ++row->users;
    if (cannot_run_) {
      row->step = Row::Step::open;
      row->ending = Outcome::failed;
      row->error = EMFILE;
    } else {
      running_.fetch_add(1, std::memory_order_relaxed);
      row->step == Row::Step::named ? open(lock, *row) : fetch_block(lock, *row);
      running_.fetch_sub(1, std::memory_order_relaxed);
    }
    --row->users;
    look_whether_over(lock, *row, gate);
    work_.notify();
  }
}

// Returns the first row that needs a thread.
LargeFetcher::Row* LargeFetcher::next_row() {
  for (const auto& row : rows_) {
    if (row->fetch == nullptr) continue;
    if (row->step == Row::Step::named || (row->step == Row::Step::open && !row->rest.is_empty()))
      return row.get();
  }
  return nullptr;
}

// Uses the open file of another row if that file was opened a moment ago. Returns false if there is
// no such row.
bool LargeFetcher::share_open_file(Row& row) {
  const std::uint64_t now = base::monotonic_ns();
  for (const auto& other : rows_) {
    const bool is_same =
        other->step == Row::Step::open && other->file != nullptr && other->path == row.path;
    if (!is_same || now - other->opened_ns > k_shared_ns || other->file->is_over()) continue;
    const long copy = base::sys::raw(SYS_fcntl, other->fd, F_DUPFD_CLOEXEC, 0);
    if (base::sys::failed(copy)) continue;
    row.fd = static_cast<int>(copy);
    row.file = other->file->share();
    row.opened_ns = other->opened_ns;
    return true;
  }
  return false;
}

void LargeFetcher::open(Lock& lock, Row& row) {
  row.step = Row::Step::opening;
  const ByteRange wanted = row.fetch->file.range;
  const bool is_shared = share_open_file(row);
  lock.unlock();
  if (!is_shared) {
    cache::LinksOnWay links = cache::LinksOnWay::unknown;
    cache::FileStat named{};
    const auto fd = open_for_fetch(row.path.c_str(), links, named);
    cache_.stats().count(base::Counter::origin_opens);
    row.opened_ns = base::monotonic_ns();
    row.fd = fd ? *fd : -1;
    const auto stat =
        fd ? cache::stat_fd(*fd) : base::Result<cache::FileStat>(base::fail(fd.error().value));
    if (fd) cache_.stats().count(base::Counter::origin_stats);
    if (!stat) {
      row.ending = Outcome::failed;
      row.error = stat.error().value;
    } else if (!stat->is_regular()) {
      row.ending = Outcome::not_a_file;
    } else if (stat->size <= cache_.ahead().max_file()) {
      row.ending = Outcome::small;
    } else {
      row.file = cache_.large().begin(row.path, row.fd);
      // Stats again: `stat` might come from the kernel's cache, but begin() has asked the server
      // for the size.
      const auto now = row.file == nullptr ? cache::stat_fd(row.fd) : stat;
      const bool is_small = now && now->size <= cache_.ahead().max_file();
      if (row.file == nullptr) row.ending = is_small ? Outcome::small : Outcome::busy;
      if (row.file != nullptr) row.file->note_fetched_ahead();
    }
  }
  if (row.file != nullptr && wanted.begin >= row.file->size()) row.ending = Outcome::bad_range;
  const bool is_good = row.ending == Outcome::whole;
  if (is_good) row.all = row.rest = {wanted.begin, std::min(wanted.end, row.file->size())};
  const std::uint64_t present = is_good ? cache_.large().present_bytes(*row.file, row.all) : 0;
  lock.lock();
  row.step = Row::Step::open;
  if (row.fetch == nullptr) return;
  measured_.fetch_add(1, std::memory_order_relaxed);
  row.is_measured = true;
  note_left(row, bytes_of(row.all) - present);
}

// Called under the lock.
void LargeFetcher::note_left(Row& row, std::uint64_t left) {
  to_come_.fetch_add(left - row.to_come, std::memory_order_relaxed);
  row.to_come = left;
}

void LargeFetcher::forget(Row& row) {
  note_left(row, 0);
  if (std::exchange(row.is_measured, false)) measured_.fetch_sub(1, std::memory_order_relaxed);
}

void LargeFetcher::fetch_block(Lock& lock, Row& row) {
  LargeFile::Range part = row.rest;
  const std::uint64_t block = cache_.large().block();
  // bring_ahead() fetches the same part, up to the end of the block.
  row.rest.begin = std::min((part.begin / block + 1) * block, row.rest.end);
  part.end = row.rest.begin;
  // At a lower depth, programs are waiting for the origin, and a request for a whole block would
  // delay them.
  const bool asks_for_block = asks_for_blocks_ && depth_ >= k_threads;
  lock.unlock();
  bool has_room = true, is_here = true;
  std::uint64_t bytes = 0;
  while (!part.is_empty() && has_room && !is_stopping()) {
    const auto stretch =
        cache_.large().bring_ahead(*row.file, row.fd, part, is_stopping_, asks_for_block);
    has_room = stretch.what != LargeFile::Brought::no_room;
    is_here = is_here && stretch.what == LargeFile::Brought::here;
    bytes += stretch.bytes;
    fetched_.fetch_add(stretch.bytes, std::memory_order_relaxed);
  }
  lock.lock();
  if (row.fetch == nullptr) return;
  row.fetch->fetched += bytes;
  note_left(row, row.to_come - std::min(row.to_come, bytes));
  row.is_missing_some |= !is_here;
  if (has_room && !row.file->is_over()) return;
  row.ending = has_room ? Outcome::busy : Outcome::no_room;
  row.passes = k_passes;
  row.rest.begin = row.rest.end;
}

void LargeFetcher::look_whether_over(Lock& lock, Row& row, CallbackGate& gate) {
  if (row.users != 0 || row.step != Row::Step::open || !row.rest.is_empty() || row.fetch == nullptr)
    return;
  if (is_stopping()) return;
  if (row.is_missing_some && ++row.passes < k_passes) {
    row.is_missing_some = false;
    row.rest = row.all;
    return;
  }
  // If the gate is closed, stop() ends the fetch.
  if (!gate.enter()) return;
  const auto at =
      std::find_if(rows_.begin(), rows_.end(), [&](const auto& one) { return one.get() == &row; });
  std::unique_ptr<Row> own = std::move(*at);
  rows_.erase(at);
  end(lock, std::move(own), gate);
}

void LargeFetcher::end(Lock& lock, std::unique_ptr<Row> row, CallbackGate& gate) {
  forget(*row);
  lock.unlock();
  LargeFetch& fetch = *row->fetch;
  fetch.ending = row->ending;
  fetch.error = row->error;
  fetch.bytes = bytes_of(row->all);
  if (row->file != nullptr) {
    fetch.missing =
        fetch.bytes - std::min(fetch.bytes, cache_.large().present_bytes(*row->file, row->all));
    if (fetch.ending == Outcome::whole && fetch.missing != 0) fetch.ending = Outcome::busy;
    row->file->end();
  }
  // The rest is not missing if another process has fetched it.
  if ((fetch.ending == Outcome::no_room || fetch.ending == Outcome::busy) && fetch.bytes != 0 &&
      fetch.missing == 0)
    fetch.ending = Outcome::whole;
  client_.large_ended(std::move(row->fetch));
  gate.leave();
  if (row->fd >= 0) base::sys::close(row->fd);
  row.reset();
  lock.lock();
}

bool LargeFetcher::submit(std::unique_ptr<LargeFetch>& fetch) {
  const std::lock_guard lock(mutex_);
  if (is_stopping() || cannot_run_) return false;
  auto row = std::make_unique<Row>(std::move(fetch));
  const PlannedFile& file = row->fetch->file;
  // Keeps the reader's order, although files that were requested at the same time can turn out to
  // be large in any order.
  auto at = rows_.end();
  while (at != rows_.begin()) {
    const auto before = std::prev(at);
    const LargeFetch* const other = (*before)->fetch.get();
    if (other == nullptr || other->file.reader != file.reader ||
        other->file.sequence < file.sequence)
      break;
    at = before;
  }
  const auto own = rows_.insert(at, std::move(row));
  if (!is_started_ && !(is_started_ = start_threads(1))) {
    fetch = std::move((*own)->fetch);
    rows_.erase(own);
    return false;
  }
  work_.notify_one();
  return true;
}

void LargeFetcher::set_depth(unsigned depth) {
  const std::lock_guard lock(mutex_);
  depth_ = std::max(depth, 1U);
  work_.notify();
}

void LargeFetcher::begin_stop() {
  const std::lock_guard lock(mutex_);
  ThreadCrew::begin_stop();
  work_.notify();
}

void LargeFetcher::stop(unsigned patience_ms) {
  begin_stop();
  wait_for_end(patience_ms * base::k_ns_per_ms);
  for (CallbackGate& gate : gates_) gate.close();
  const std::lock_guard lock(mutex_);
  for (const auto& row : rows_) {
    forget(*row);
    // Does not close the fds: the end of the last thread frees the fd table, and a file that a
    // thread uses stays open until then.
    if (row->users == 0 && row->file != nullptr) std::exchange(row->file, nullptr)->end();
    std::unique_ptr<LargeFetch> fetch = std::move(row->fetch);
    if (fetch == nullptr) continue;
    fetch->ending = Outcome::stopped;
    client_.large_ended(std::move(fetch));
  }
}

}  // namespace cube::prefetch
