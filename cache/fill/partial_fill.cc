#include "cache/fill/partial_fill.h"

#include <sys/uio.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>

#include "cache/base/clock.h"
#include "cache/base/process/block_signals.h"
#include "cache/fill/recent_misses.h"
#include "cache/region/fetch_scope.h"
#include "cache/region/listings.h"

namespace cube::cache {
namespace {

using base::Counter;

constexpr std::size_t k_fills = 64;
// The longest time for which a reader waits for a part that another reader is fetching. A signal
// handler may have jumped out of that fetch.
constexpr std::uint64_t k_longest_wait_ns = base::k_ns_per_s;
// The bytes of one step. A step is so small that its bytes are still in the processor's caches when
// they are copied to the program.
constexpr std::uint64_t k_step = 1 << 20;
// The step while another process waits for the flight. Smaller steps report progress more often;
// without progress, the waiting process would assume that this process is dead.
constexpr std::uint64_t k_waited_step = 256 << 10;
// The size of the first read. The first read is short, because look_for_pages() can run only
// afterwards.
constexpr std::uint64_t k_first_step = 128 << 10;
// How many bytes are read ahead of a sequential reader.
constexpr std::uint64_t k_most_ahead = 1 << 20, k_pages_ahead = 1 << 20, k_pages_a_call = 128 << 10;

alignas(64) constinit std::byte g_pool[sizeof(PartialFill) * k_fills]{};

// Objects of the pool from this index on were never used. Searches end here.
constinit std::atomic<std::size_t> g_fills_reached{0};

PartialFill& fill_at(std::size_t i) { return reinterpret_cast<PartialFill*>(g_pool)[i]; }

}  // namespace

PartialFill* PartialFill::begin(CacheParts& parts, RecordFill& fetch,
                                SingleFlight::Ticket& flight) {
  PartialFill* fill = nullptr;
  for (std::size_t i = 0; i < k_fills && fill == nullptr; ++i) {
    State none = State::free;
    if (fill_at(i).state_.compare_exchange_strong(none, State::making, std::memory_order_acq_rel))
      fill = &fill_at(i);
  }
  if (fill == nullptr) return nullptr;
  const auto after = static_cast<std::size_t>(fill - &fill_at(0)) + 1;
  std::size_t reached = g_fills_reached.load(std::memory_order_relaxed);
  while (reached < after &&
         !g_fills_reached.compare_exchange_weak(reached, after, std::memory_order_release)) {
  }
  auto* const own = new (fill->fetch_) RecordFill(std::move(fetch));
  fill->pin_ = own->show_head();
  fill->record_ = &*fill->pin_;
  const std::uint64_t size = fill->record_->stat.size;
  fill->part_bytes_ =
      std::max(k_least_part, std::bit_ceil((size + k_most_parts - 1) / k_most_parts));
  fill->part_count_ =
      static_cast<std::uint32_t>((size + fill->part_bytes_ - 1) / fill->part_bytes_);
  fill->missing_.store(fill->part_count_, std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < fill->part_count_; ++i)
    fill->parts_[i].store(Part::missing, std::memory_order_relaxed);
  fill->has_ended_.store(false, std::memory_order_relaxed);
  fill->waiters_.store(0, std::memory_order_relaxed);
  fill->shown_.store(0, std::memory_order_relaxed);
  fill->pages_.store(Pages::unknown, std::memory_order_relaxed);
  fill->next_.store(0, std::memory_order_relaxed);
  fill->ahead_.store(0, std::memory_order_relaxed);
  fill->window_.store(0, std::memory_order_relaxed);
  fill->hashing_.store(false, std::memory_order_relaxed);
  fill->has_read_.store(false, std::memory_order_relaxed);
  fill->cache_ = &parts;
  fill->hashed_ = 0;
  new (fill->hasher_) base::Hasher;
  fill->hash_of_path_.store(base::hash_path(fill->record_->path()), std::memory_order_relaxed);
  fill->take_kept();
  fill->flight_ = flight.in_parts();
  // The release makes the other members visible to join(), which may run in another thread.
  fill->users_.store(1, std::memory_order_release);
  fill->state_.store(State::open, std::memory_order_release);
  // Tells opens that wait for the flight that they can join the fill now.
  flight.come_in_parts();
  return fill;
}

bool PartialFill::may_be_coming(std::uint64_t hash_of_path) {
  for (std::size_t i = 0, end = g_fills_reached.load(std::memory_order_acquire); i < end; ++i) {
    const PartialFill& fill = fill_at(i);
    if (fill.is_under_way() && fill.hash_of_path_.load(std::memory_order_relaxed) == hash_of_path)
      return true;
  }
  return false;
}

PartialFill* PartialFill::join(std::string_view path, std::uint64_t hash_of_path,
                               const FileStat& stat) {
  for (std::size_t i = 0, end = g_fills_reached.load(std::memory_order_acquire); i < end; ++i) {
    PartialFill& fill = fill_at(i);
    if (!fill.is_under_way()) continue;
    std::uint32_t users = fill.users_.load(std::memory_order_relaxed);
    while (users != 0 &&
           !fill.users_.compare_exchange_weak(users, users + 1, std::memory_order_acquire)) {
    }
    if (users == 0) continue;
    // The object now has a user, so it stays in use. But it may already belong to another file.
    const bool is_wanted = fill.hash_of_path_.load(std::memory_order_relaxed) == hash_of_path &&
                           fill.goes_on() && fill.flight_.is_held() &&
                           fill.record_->path() == path &&
                           stat.is_unchanged_since(fill.record_->stat);
    if (is_wanted) return &fill;
    fill.end();
  }
  return nullptr;
}

bool PartialFill::is_unchanged(int fd, int flags) const {
  // Without this flag, the kernel answers from cached attributes, which costs no request.
  if (flags == k_ask_server) fetch().tier().region().stats().count(Counter::origin_stats);
  const auto now = stat_fd(fd, flags);
  return now && now->is_unchanged_since(record_->stat);
}

bool PartialFill::has_any_part(std::uint64_t at, std::uint64_t n) const {
  for (std::uint64_t i = at / part_bytes_; i * part_bytes_ < at + n; ++i) {
    if (parts_[i].load(std::memory_order_relaxed) == Part::here) return true;
  }
  return false;
}

PartialFill::Bytes PartialFill::bring(const FdEpoch& fd, std::uint64_t at, std::uint64_t n) {
  if (state_.load(std::memory_order_acquire) == State::given_up) return Bytes::at_origin;
  if (is_under_way() && !fetch().is_unchanged()) {
    give_up();
    return Bytes::at_origin;
  }
  // A reader that goes back may want to see whether the bytes have changed, so the file is
  // revalidated first. For a reader that goes forward, the bytes as they were fetched suffice.
  const std::uint64_t shown = shown_.load(std::memory_order_relaxed);
  if (at < shown && is_under_way() && has_any_part(at, n) && !is_unchanged(fd.fd(), /*flags=*/0)) {
    if (may_go_on(fd)) give_up();
    return Bytes::at_origin;
  }
  if (at + n > shown) shown_.store(at + n, std::memory_order_relaxed);
  const auto first = static_cast<std::uint32_t>(at / part_bytes_);
  std::uint64_t end = at + n;
  if (pages_.load(std::memory_order_relaxed) == Pages::unknown) {
    const auto some = static_cast<std::uint32_t>(
        (std::min(end, at + k_first_step) + part_bytes_ - 1) / part_bytes_);
    if (const Bytes bytes = bring_parts(fd, first, some); bytes != Bytes::here) return bytes;
    if (has_read_.load(std::memory_order_relaxed)) look_for_pages(fd.fd());
  }
  const std::uint64_t wanted = read_ahead(fd.fd(), at, end);
  Bytes bytes =
      bring_parts(fd, first, static_cast<std::uint32_t>((wanted + part_bytes_ - 1) / part_bytes_));
  // If another process waits for the flight, fetches the rest now. Otherwise that process would
  // have to wait for this program's next reads.
  if (bytes == Bytes::here && is_under_way() && flight_.is_waited_for())
    bring_parts(fd, 0, part_count_);
  return bytes;
}

// Finds out whether the kernel keeps pages of the file. If the kernel does not report this,
// readahead is left to the kernel.
void PartialFill::look_for_pages(int fd) {
  struct {
    std::uint64_t at, length;
  } const range{0, size()};
  struct {
    std::uint64_t cached, dirty, under_writeback, evicted, evicted_recently;
  } pages{};
  constexpr long k_cachestat = 451;
  const long error =
      base::sys::raw(k_cachestat, fd, base::sys::arg(&range), base::sys::arg(&pages), 0);
  const Pages found = base::sys::failed(error) ? Pages::secret
                      : pages.cached != 0      ? Pages::kept
                                               : Pages::none;
  pages_.store(found, std::memory_order_relaxed);
}

// Returns the end of the range whose parts must be fetched now.
std::uint64_t PartialFill::read_ahead(int fd, std::uint64_t at, std::uint64_t end) {
  const bool goes_on = next_.exchange(end, std::memory_order_relaxed) == at;
  if (!goes_on) window_.store(0, std::memory_order_relaxed);
  if (!goes_on || !is_under_way()) return end;
  const std::uint64_t window =
      std::min(window_.load(std::memory_order_relaxed) * 2 + (end - at), k_most_ahead);
  window_.store(window, std::memory_order_relaxed);
  const Pages pages = pages_.load(std::memory_order_relaxed);
  // Does not read ahead at offset 0, because the program may want only the header.
  const bool is_here =
      parts_[(end - 1) / part_bytes_].load(std::memory_order_relaxed) != Part::missing;
  if (pages == Pages::none && at != 0)
    return is_here ? end : std::min(std::max(end, at + window), size());
  const std::uint64_t ahead = std::max(ahead_.load(std::memory_order_relaxed), end);
  if (pages != Pages::kept || window < 4 * k_least_part || ahead >= end + k_pages_ahead / 2)
    return end;
  const std::uint64_t to = std::min(end + k_pages_ahead, size());
  ahead_.store(to, std::memory_order_relaxed);
  // By default, one call makes the kernel read at most k_pages_a_call bytes ahead. Skips parts that
  // the room already has, because the kernel may have dropped their pages and would read them
  // again.
  for (std::uint64_t from = ahead, upto = 0; from < to; from = upto) {
    const auto is_missing = [&](std::uint64_t byte) {
      return parts_[byte / part_bytes_].load(std::memory_order_relaxed) == Part::missing;
    };
    const bool is_wanted = is_missing(from);
    const std::uint64_t most = std::min(to, from + k_pages_a_call);
    upto = from;
    while (upto < most && is_missing(upto) == is_wanted)
      upto = std::min(most, (upto / part_bytes_ + 1) * part_bytes_);
    if (is_wanted)
      base::sys::raw(SYS_readahead, fd, static_cast<long>(from), static_cast<long>(upto - from));
  }
  return end;
}

PartialFill::Bytes PartialFill::bring_all(const FdEpoch& fd) {
  if (!goes_on()) return Bytes::at_origin;
  return bring_parts(fd, 0, part_count_);
}

PartialFill::Bytes PartialFill::bring_parts(const FdEpoch& fd, std::uint32_t first,
                                            std::uint32_t end) {
  while (first < end && parts_[first].load(std::memory_order_acquire) == Part::here) ++first;
  if (first >= end) return Bytes::here;
  // A signal handler that has interrupted a fetch of this thread fetches nothing.
  if (FetchScope::is_open()) return Bytes::at_origin;
  FetchScope scope;
  // If a jump leaves this function, the claimed parts never arrive, so no record is published. The
  // scope then ends the flight.
  scope.hold(flight_);
  scope.begin_wait(fetch().tier().region().own_process());
  for (std::uint32_t part = first; part < end;) {
    if (parts_[part].load(std::memory_order_acquire) == Part::here) {
      ++part;
      continue;
    }
    const std::uint64_t step = flight_.is_waited_for() ? k_waited_step : k_step;
    const auto most = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(step / part_bytes_));
    const std::uint32_t taken = take_parts(part, std::min(end, part + most));
    if (taken == part) {
      if (!wait_for(part)) return Bytes::at_origin;
      continue;
    }
    const std::uint64_t from = part * part_bytes_, to = std::min(taken * part_bytes_, size());
    const std::uint64_t began = base::monotonic_ns();
    const long error = read_parts(fd.fd(), from, to);
    fetch().tier().region().stats().count(Counter::miss_ns, base::monotonic_ns() - began);
    // The fd may have been replaced by another file during the read.
    const bool is_right = error == 0 && may_go_on(fd) && scope.is_own();
    if (!is_right) {
      mark(part, taken, Part::missing);
      if (error == -ESTALE && may_go_on(fd)) give_up();
      return error == -EINTR ? Bytes::interrupted : Bytes::at_origin;
    }
    has_read_.store(true, std::memory_order_relaxed);
    hash_parts(from, to);
    mark(part, taken, Part::here);
    if (missing_.fetch_sub(taken - part, std::memory_order_seq_cst) == taken - part) publish(fd);
    flight_.tell_progress();
    part = taken;
  }
  return Bytes::here;
}

// Claims the parts from `first` on. Returns the first part that could not be claimed.
std::uint32_t PartialFill::take_parts(std::uint32_t first, std::uint32_t end) {
  std::uint32_t part = first;
  for (; part < end; ++part) {
    Part missing = Part::missing;
    if (!parts_[part].compare_exchange_strong(missing, Part::under_way, std::memory_order_acq_rel))
      break;
  }
  return part;
}

// Ends the fetch of the parts that this reader has claimed, and wakes the readers that wait for
// these parts.
void PartialFill::mark(std::uint32_t first, std::uint32_t end, Part as) {
  for (std::uint32_t i = first; i < end; ++i) parts_[i].store(as, std::memory_order_release);
  // seq_cst: either this load sees the waiter, or the waiter sees the new count and does not sleep.
  marks_.fetch_add(1, std::memory_order_seq_cst);
  if (waiters_.load(std::memory_order_seq_cst) != 0) base::sys::futex_wake_all(&marks_);
}

// Waits for a part that another reader is fetching. False: the part has not arrived in time.
bool PartialFill::wait_for(std::uint32_t part) {
  const std::uint64_t until = base::monotonic_ns() + k_longest_wait_ns;
  Part seen = Part::under_way;
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  while (seen == Part::under_way) {
    const std::uint32_t marks = marks_.load(std::memory_order_seq_cst);
    seen = parts_[part].load(std::memory_order_acquire);
    if (seen != Part::under_way) break;
    const std::uint64_t now = base::monotonic_ns();
    if (now < until) base::sys::futex_wait(&marks_, marks, until - now);
    // After a timeout, marks this part and the claimed parts after it, so that later readers do not
    // wait for them.
    for (std::uint32_t i = part; now >= until && i < part_count_; ++i) {
      Part late = Part::under_way;
      if (!parts_[i].compare_exchange_strong(late, Part::overdue, std::memory_order_relaxed)) break;
    }
  }
  waiters_.fetch_sub(1, std::memory_order_relaxed);
  return seen == Part::here || seen == Part::missing;
}

// Returns 0 or -errno. ESTALE: the length of the file has changed.
long PartialFill::read_parts(int fd, std::uint64_t from, std::uint64_t to) {
  base::Stats& stats = fetch().tier().region().stats();
  std::byte* const room = fetch().room();
  while (from < to) {
    // Reads one byte past the last part to detect a file that has grown.
    std::byte beyond{};
    const struct ::iovec bytes[2] = {{room + from, to - from}, {&beyond, 1}};
    stats.count(Counter::origin_reads);
    const long n = base::sys::raw(SYS_preadv, fd, base::sys::arg(bytes), to == size() ? 2 : 1,
                                  static_cast<long>(from));
    if (base::sys::failed(n)) return n;
    stats.count(Counter::origin_bytes, static_cast<std::uint64_t>(n));
    from += static_cast<std::uint64_t>(n);
    if (n == 0 || from > to) return -ESTALE;
  }
  return 0;
}

// Hashes parts while their bytes are still in the processor's caches.
void PartialFill::hash_parts(std::uint64_t from, std::uint64_t to) {
  if (hashing_.exchange(true, std::memory_order_acquire)) return;
  if (hashed_ == from) {
    reinterpret_cast<base::Hasher*>(hasher_)->add(fetch().room() + from, to - from);
    hashed_ = to;
  }
  hashing_.store(false, std::memory_order_release);
}

// Counts the bytes of this file for its directory's listing, which limits prefetching by the bytes
// that programs have read. The open has counted none of them.
void PartialFill::note_read() const {
  const std::uint64_t parts = part_count_ - missing_.load(std::memory_order_relaxed);
  Listings(fetch().tier().region())
      .note_bytes(record_->path(), std::min(parts * part_bytes_, size()));
}

// Sequentially consistent, as is missing_: if a claim fails after the last part has arrived, the
// thread that has the claim sees that no part is missing.
bool PartialFill::claim() {
  State open = State::open;
  return state_.compare_exchange_strong(open, State::claimed, std::memory_order_seq_cst);
}

// Meanwhile, another thread may have given up the fill, or fetched its last part.
void PartialFill::end_claim(int fd) {
  state_.store(State::open, std::memory_order_seq_cst);
  if (has_ended_.load(std::memory_order_seq_cst)) {
    give_up();
  } else if (missing_.load(std::memory_order_seq_cst) == 0) {
    publish(FdEpoch(fd));
  }
}

void PartialFill::publish(const FdEpoch& fd) {
  if (!claim()) return;
  bool published = is_unchanged(fd.fd(), k_ask_server) && may_go_on(fd);
  if (published) {
    // No other thread uses the hasher now, because each part is hashed before it counts as `here`.
    auto& hasher = *reinterpret_cast<base::Hasher*>(hasher_);
    hasher.add(fetch().room() + hashed_, size() - hashed_);
    fetch().note_hash(hasher.value());
    published = fetch().publish();
    fetch().pin().release();
    if (published) note_read();
    if (published) drop_kept();
  }
  state_.store(published ? State::published : State::given_up, std::memory_order_release);
  flight_.end_copy();
}

void PartialFill::finish_at_close(int fd) {
  if (users_.load(std::memory_order_relaxed) > 1) return;
  if (missing_.load(std::memory_order_relaxed) == 0) return publish(FdEpoch(fd));
  bool can_be_undone = false;
  {
    const base::BlockSignals block;
    if (!claim()) return;
    can_be_undone = fetch().can_be_undone();
    end_claim(fd);
  }
  const std::uint64_t missing = missing_.load(std::memory_order_relaxed) * part_bytes_;
  const bool is_nearly_whole = missing * 8 <= size() && missing <= k_step;
  const bool cannot_be_kept =
      cache_->rules.block == 0 &&
      is_noted_miss(cache_->region, hash_of_path_.load(std::memory_order_relaxed));
  if (is_nearly_whole || cannot_be_kept || !can_be_undone) {
    bring_all(FdEpoch(fd));
  } else {
    keep(fd);
  }
}

void PartialFill::give_up() {
  has_ended_.store(true, std::memory_order_seq_cst);
  State open = State::open;
  if (state_.compare_exchange_strong(open, State::given_up, std::memory_order_acq_rel))
    flight_.end_copy();
}

void PartialFill::end() {
  // A forked child has already forgotten the fills of its parent.
  if (state_.load(std::memory_order_acquire) == State::free) return;
  if (users_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const State state = state_.load(std::memory_order_acquire);
  // Notes a miss, so that the file is fetched as a whole if it is opened again.
  if (state == State::open && missing_.load(std::memory_order_relaxed) < part_count_)
    note_miss(fetch().tier().region(), hash_of_path_.load(std::memory_order_relaxed));
  give_up();
  if (state != State::published) note_read();
  // The fetch gives back the room, so it is destroyed before the pin is released. Without the pin,
  // the segment could be reclaimed first.
  fetch().~RecordFill();
  pin_.release();
  state_.store(State::free, std::memory_order_release);
}

void PartialFill::give_up_all() {
  for (std::size_t i = 0; i < k_fills; ++i) fill_at(i).give_up();
}

void PartialFill::forget_all() {
  for (std::size_t i = 0; i < k_fills; ++i) {
    PartialFill& fill = fill_at(i);
    const State state = fill.state_.load(std::memory_order_relaxed);
    if (state == State::free) continue;
    fill.pin_.forget();
    if (state != State::making) fill.fetch().abandon();
    fill.users_.store(0, std::memory_order_relaxed);
    fill.state_.store(State::free, std::memory_order_relaxed);
  }
}

}  // namespace cube::cache
