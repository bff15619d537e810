#include "prefetch/work/large_fetcher.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <list>
#include <mutex>
#include <new>
#include <utility>

#include "cache/base/clock.h"
#include "cache/base/condition.h"
#include "cache/base/error_text.h"
#include "prefetch/engine/whole_file.h"
#include "prefetch/threads/background_thread.h"
#include "prefetch/threads/callback_gate.h"
#include "prefetch/threads/starter_traits.h"

namespace cube::prefetch {
namespace {

using cache::LargeFile;
using Outcome = LargeFetch::Ending;

constexpr std::size_t k_large_stack = 128 << 10;
// Parts of one file that are named one after the other share an open file for this long.
constexpr std::uint64_t k_shared_ns = 1'000'000'000;
// Blocks that another process was fetching are tried a second time.
constexpr int k_passes = 2;

}  // namespace

// One fetch. The mutex guards all fields except those that its users read: the file, and the fields
// that are fixed once it is open.
struct LargeFetcher::Row {
  explicit Row(std::unique_ptr<LargeFetch> of) : path(of->file.path), fetch(std::move(of)) {}

  enum class Step : std::uint8_t { named, opening, open } step = Step::named;
  const std::string path;
  std::unique_ptr<LargeFetch> fetch;  // null: stop() has ended it
  // In the threads' own fd table, so no other thread ever closes it.
  int fd = -1;
  std::uint64_t opened_ns = 0;
  LargeFile* file = nullptr;
  LargeFile::Range all, rest;
  std::uint64_t to_come = 0;
  unsigned users = 0;
  int passes = 0;
  bool is_missing_some = false, is_measured = false;
  Outcome ending = Outcome::whole;
  int error = 0;
};

struct LargeFetcher::State {
  State(cache::FileCache& of, LargeClient& to, int by) : cache(of), client(to), nice(by) {}

  cache::FileCache& cache;
  LargeClient& client;
  const int nice;
  std::atomic<bool> is_stopping{false};
  std::atomic<std::uint64_t> fetched{0}, to_come{0};
  std::atomic<unsigned> running{0}, threads{0}, measured{0};
  EventCount over;
  CallbackGate gates[k_threads];

  base::Mutex mutex;  // guards the rest
  base::Condition work;
  std::list<std::unique_ptr<Row>> rows;  // each reader's in its order
  unsigned depth = k_threads;
  unsigned started = 0;
  bool has_table = false, cannot_run = false;

  using Lock = base::Condition::Lock;
  bool start_thread(const std::shared_ptr<State>& self, unsigned number);
  void run(const std::shared_ptr<State>& self, unsigned number);
  void keep_at_it(Lock& lock, CallbackGate& gate);
  Row* next_row();
  void open(Lock& lock, Row& row);
  bool share_open_file(Row& row);
  void fetch_block(Lock& lock, Row& row);
  void look_whether_over(Lock& lock, Row& row, CallbackGate& gate);
  // The caller has the lock, and is in the gate.
  void end(Lock& lock, std::unique_ptr<Row> row, CallbackGate& gate);
  void note_left(Row& row, std::uint64_t left);
  void forget(Row& row);
};

struct ThreadStart {
  std::shared_ptr<void> state;
  unsigned number;
};

namespace {

std::uint64_t bytes_of(const LargeFile::Range& range) {
  return range.is_empty() ? 0 : range.end - range.begin;
}

}  // namespace

bool LargeFetcher::State::start_thread(const std::shared_ptr<State>& self, unsigned number) {
  auto* const start = new (std::nothrow) ThreadStart{self, number};
  if (start == nullptr) return false;
  const auto body = [](void* of) {
    const std::unique_ptr<ThreadStart> own(static_cast<ThreadStart*>(of));
    const auto state = std::static_pointer_cast<State>(own->state);
    try {
      state->run(state, own->number);
    } catch (...) {
      // No memory. stop() ends the fetch that the thread was working on.
      base::log(base::LogLevel::info, "a thread that fetches large files has ended: no memory");
    }
    state->threads.fetch_sub(1, std::memory_order_release);
    state->over.notify();
  };
  threads.fetch_add(1, std::memory_order_relaxed);
  const int error = start_background_thread(body, start, k_large_stack);
  if (error == 0) return true;
  base::log(base::LogLevel::info, "large files are not prefetched: no thread: {}",
            base::text_of_error(error));
  threads.fetch_sub(1, std::memory_order_relaxed);
  delete start;
  return false;
}

void LargeFetcher::State::run(const std::shared_ptr<State>& self, unsigned number) {
  lower_priority(nice);
  Lock lock(mutex);
  if (number == 0) {
    // The other threads share this thread's fd table.
    const auto table = take_private_fd_table();
    has_table = static_cast<bool>(table);
    if (!table) {
      base::log(base::LogLevel::info,
                "large files are not prefetched: close_range(CLOSE_RANGE_UNSHARE): {}",
                base::text_of_error(table.error().value));
      cannot_run = true;
    }
    while (has_table && started < k_threads && start_thread(self, started)) ++started;
  }
  keep_at_it(lock, gates[number]);
}

void LargeFetcher::State::keep_at_it(Lock& lock, CallbackGate& gate) {
  while (!is_stopping.load(std::memory_order_acquire)) {
    Row* const row =
        cannot_run || running.load(std::memory_order_relaxed) < depth ? next_row() : nullptr;
    if (row == nullptr) {
      work.wait(lock);
      continue;
    }
    ++row->users;
    if (cannot_run) {
      row->step = Row::Step::open;
      row->ending = Outcome::failed;
      row->error = EMFILE;
    } else {
      running.fetch_add(1, std::memory_order_relaxed);
      row->step == Row::Step::named ? open(lock, *row) : fetch_block(lock, *row);
      running.fetch_sub(1, std::memory_order_relaxed);
    }
    --row->users;
    look_whether_over(lock, *row, gate);
    work.notify();
  }
}

// The first row that needs a thread.
LargeFetcher::Row* LargeFetcher::State::next_row() {
  for (const auto& row : rows) {
    if (row->fetch == nullptr) continue;
    if (row->step == Row::Step::named || (row->step == Row::Step::open && !row->rest.is_empty()))
      return row.get();
  }
  return nullptr;
}

// Shares the file of another row if that was opened a moment ago. False: there is no such row.
bool LargeFetcher::State::share_open_file(Row& row) {
  const std::uint64_t now = base::monotonic_ns();
  for (const auto& other : rows) {
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

void LargeFetcher::State::open(Lock& lock, Row& row) {
  row.step = Row::Step::opening;
  const ByteRange wanted = row.fetch->file.range;
  const bool is_shared = share_open_file(row);
  lock.unlock();
  if (!is_shared) {
    cache::LinksOnWay links = cache::LinksOnWay::unknown;
    const auto fd = open_for_fetch(row.path.c_str(), links);
    cache.stats().count(base::Counter::origin_opens);
    row.opened_ns = base::monotonic_ns();
    row.fd = fd ? *fd : -1;
    const auto stat =
        fd ? cache::stat_fd(*fd) : base::Result<cache::FileStat>(base::fail(fd.error().value));
    if (fd) cache.stats().count(base::Counter::origin_stats);
    if (!stat) {
      row.ending = Outcome::failed;
      row.error = stat.error().value;
    } else if (!stat->is_regular()) {
      row.ending = Outcome::not_a_file;
    } else if (stat->size <= cache.ahead().max_file()) {
      row.ending = Outcome::small;
    } else {
      row.file = cache.large().begin(row.path, row.fd);
      if (row.file == nullptr) row.ending = Outcome::busy;
      if (row.file != nullptr) row.file->note_fetched_ahead();
    }
  }
  if (row.file != nullptr && wanted.begin >= row.file->size()) row.ending = Outcome::bad_range;
  const bool is_good = row.ending == Outcome::whole;
  if (is_good) row.all = row.rest = {wanted.begin, std::min(wanted.end, row.file->size())};
  const std::uint64_t present = is_good ? cache.large().present_bytes(*row.file, row.all) : 0;
  lock.lock();
  row.step = Row::Step::open;
  if (row.fetch == nullptr) return;
  measured.fetch_add(1, std::memory_order_relaxed);
  row.is_measured = true;
  note_left(row, bytes_of(row.all) - present);
}

// Under the lock.
void LargeFetcher::State::note_left(Row& row, std::uint64_t left) {
  to_come.fetch_add(left - row.to_come, std::memory_order_relaxed);
  row.to_come = left;
}

void LargeFetcher::State::forget(Row& row) {
  note_left(row, 0);
  if (std::exchange(row.is_measured, false)) measured.fetch_sub(1, std::memory_order_relaxed);
}

void LargeFetcher::State::fetch_block(Lock& lock, Row& row) {
  LargeFile::Range part = row.rest;
  const std::uint64_t block = cache.large().block();
  // bring_ahead takes the same part: up to the end of the block.
  row.rest.begin = std::min((part.begin / block + 1) * block, row.rest.end);
  part.end = row.rest.begin;
  lock.unlock();
  bool has_room = true, is_here = true;
  std::uint64_t bytes = 0;
  while (!part.is_empty() && has_room && !is_stopping.load(std::memory_order_acquire)) {
    const auto stretch = cache.large().bring_ahead(*row.file, row.fd, part, is_stopping);
    has_room = stretch.what != LargeFile::Brought::no_room;
    is_here = is_here && stretch.what == LargeFile::Brought::here;
    bytes += stretch.bytes;
    fetched.fetch_add(stretch.bytes, std::memory_order_relaxed);
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

void LargeFetcher::State::look_whether_over(Lock& lock, Row& row, CallbackGate& gate) {
  if (row.users != 0 || row.step != Row::Step::open || !row.rest.is_empty() || row.fetch == nullptr)
    return;
  if (is_stopping.load(std::memory_order_acquire)) return;
  if (row.is_missing_some && ++row.passes < k_passes) {
    row.is_missing_some = false;
    row.rest = row.all;
    return;
  }
  // Otherwise stop() ends it.
  if (!gate.enter()) return;
  const auto at =
      std::find_if(rows.begin(), rows.end(), [&](const auto& one) { return one.get() == &row; });
  std::unique_ptr<Row> own = std::move(*at);
  rows.erase(at);
  end(lock, std::move(own), gate);
}

void LargeFetcher::State::end(Lock& lock, std::unique_ptr<Row> row, CallbackGate& gate) {
  forget(*row);
  lock.unlock();
  LargeFetch& fetch = *row->fetch;
  fetch.ending = row->ending;
  fetch.error = row->error;
  fetch.bytes = bytes_of(row->all);
  if (row->file != nullptr) {
    fetch.missing =
        fetch.bytes - std::min(fetch.bytes, cache.large().present_bytes(*row->file, row->all));
    if (fetch.ending == Outcome::whole && fetch.missing != 0) fetch.ending = Outcome::busy;
    row->file->end();
  }
  // Another process may have fetched the rest meanwhile.
  if ((fetch.ending == Outcome::no_room || fetch.ending == Outcome::busy) && fetch.bytes != 0 &&
      fetch.missing == 0)
    fetch.ending = Outcome::whole;
  client.large_ended(std::move(row->fetch));
  gate.leave();
  if (row->fd >= 0) base::sys::close(row->fd);
  row.reset();
  lock.lock();
}

LargeFetcher::LargeFetcher(cache::FileCache& cache, LargeClient& client, int nice)
    : state_(std::make_shared<State>(cache, client, nice)) {}

LargeFetcher::~LargeFetcher() = default;

bool LargeFetcher::submit(std::unique_ptr<LargeFetch>& fetch) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (state.is_stopping.load(std::memory_order_relaxed) || state.cannot_run) return false;
  auto row = std::make_unique<Row>(std::move(fetch));
  const PlannedFile& file = row->fetch->file;
  // Files that were asked for at the same time turn out to be large in any order.
  auto at = state.rows.end();
  while (at != state.rows.begin()) {
    const auto before = std::prev(at);
    const LargeFetch* const other = (*before)->fetch.get();
    if (other == nullptr || other->file.reader != file.reader ||
        other->file.sequence < file.sequence)
      break;
    at = before;
  }
  const auto own = state.rows.insert(at, std::move(row));
  if (state.started == 0) {
    if (!state.start_thread(state_, 0)) {
      fetch = std::move((*own)->fetch);
      state.rows.erase(own);
      return false;
    }
    state.started = 1;
  }
  state.work.notify_one();
  return true;
}

void LargeFetcher::set_depth(unsigned depth) {
  const std::lock_guard lock(state_->mutex);
  state_->depth = std::max(depth, 1U);
  state_->work.notify();
}

unsigned LargeFetcher::in_flight() const { return state_->running.load(std::memory_order_relaxed); }
std::uint64_t LargeFetcher::fetched_bytes() const {
  return state_->fetched.load(std::memory_order_relaxed);
}
unsigned LargeFetcher::measured() const { return state_->measured.load(std::memory_order_relaxed); }
std::uint64_t LargeFetcher::bytes_to_come() const {
  return state_->to_come.load(std::memory_order_relaxed);
}

void LargeFetcher::begin_stop() {
  const std::lock_guard lock(state_->mutex);
  state_->is_stopping.store(true, std::memory_order_release);
  state_->work.notify();
}

void LargeFetcher::stop(unsigned patience_ms) {
  State& state = *state_;
  begin_stop();
  state.over.wait_until([&] { return state.threads.load(std::memory_order_acquire) == 0; },
                        patience_ms * base::k_ns_per_ms);
  for (CallbackGate& gate : state.gates) gate.close();
  const std::lock_guard lock(state.mutex);
  for (const auto& row : state.rows) {
    state.forget(*row);
    // The fd table goes with the last thread, and a file that a thread is using stays behind with
    // that thread.
    if (row->users == 0 && row->file != nullptr) std::exchange(row->file, nullptr)->end();
    std::unique_ptr<LargeFetch> fetch = std::move(row->fetch);
    if (fetch == nullptr) continue;
    fetch->ending = Outcome::stopped;
    state.client.large_ended(std::move(fetch));
  }
}

}  // namespace cube::prefetch
