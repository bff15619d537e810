#include "prefetch/work/prefetcher.h"

#include <algorithm>
#include <new>

#include "cache/base/clock.h"
#include "cache/base/path.h"
#include "prefetch/work/decline_reason.h"
#include "prefetch/work/try_to.h"

namespace cube::prefetch {

using base::Counter;
using Begin = cache::BackgroundFill::Begin;

Prefetcher::Prefetcher(cache::FileCache& cache, Options options)
    : cache_(cache),
      options_(std::move(options)),
      watch_(cache.ahead().ring()),
      large_(LargeFetcher::make(cache, *this, options_.nice, options_.asks_for_blocks)),
      progress_(options_.progress != nullptr ? options_.progress : &own_progress_),
      run_ahead_(cache.ahead()),
      depth_(options_.depth) {
  large_->set_depth(depth_);
}

std::unique_ptr<Prefetcher> Prefetcher::make(cache::FileCache& cache, Options options,
                                             std::string& why) {
  std::unique_ptr<Prefetcher> prefetcher(new Prefetcher(cache, std::move(options)));
  EngineOptions engine;
  engine.depth = prefetcher->options_.depth;
  engine.nice = prefetcher->options_.nice;
  prefetcher->engine_ = make_engine(prefetcher->options_.engine, engine, *prefetcher, why);
  if (prefetcher->engine_ == nullptr) return nullptr;
  if (cache.ahead().has_remote() && !prefetcher->make_remote_engine(why)) return nullptr;
  if (cache.ahead().origins() == nullptr) return prefetcher;
  engine.origins = cache.ahead().origins();
  engine.max_file = cache.ahead().max_file();
  prefetcher->whole_file_engine_ = make_engine(base::EngineKind::threads, engine, *prefetcher, why);
  if (prefetcher->whole_file_engine_ == nullptr) return nullptr;
  return prefetcher;
}

Prefetcher::~Prefetcher() { stop(50); }

bool Prefetcher::wants_more() {
  const std::lock_guard lock(mutex_);
  return !run_ahead_.is_full() && !is_stopped_;
}

bool Prefetcher::wants_more_of(std::uint32_t reader) {
  const std::lock_guard lock(mutex_);
  return takes(reader);
}

bool Prefetcher::takes(std::uint32_t reader) const {
  return !is_stopped_ &&
         (!run_ahead_.is_full() || (is_blocked_ && run_ahead_.takes_beyond(reader)));
}

bool Prefetcher::offer(PlannedFile& file) {
  if (whole_file_engine_ != nullptr) {
    if (!wants_more_of(file.reader)) return false;
    file.place = cache_.ahead().origin_of(file.path).place_of(file.path);
  }
  {
    const std::lock_guard lock(mutex_);
    if (!takes(file.reader)) return false;
    run_ahead_.add(file);
  }
  pump();
  return true;
}

void Prefetcher::set_depth(unsigned depth) {
  {
    const std::lock_guard lock(mutex_);
    if (depth_ == depth) return;
    depth_ = depth;
  }
  large_->set_depth(depth);
  engine_->set_depth(depth);
  if (whole_file_engine_ != nullptr) whole_file_engine_->set_depth(depth);
  if (remote_engine_ != nullptr) remote_engine_->set_depth(depth);
  pump();
}

// Under the lock.
bool Prefetcher::is_for_ring_alone() const { return cache_.ahead().is_full() || is_resident_full_; }

// Called under the lock. The resident pool needs no accounting: when it is full, the next file is
// put into the ring.
bool Prefetcher::has_room(const PlannedFile& file) {
  if (!is_for_ring(file)) return true;
  return run_ahead_.take_room(unplaced_.load(std::memory_order_relaxed), base::monotonic_ns());
}

// Under the lock.
std::unique_ptr<Prefetcher::PlannedFetch> Prefetcher::next_flight(std::size_t place) {
  PlannedFile& next = run_ahead_.waiting()[place];
  is_blocked_ = !has_room(next);
  if (is_blocked_) {
    // A file that a program fetches itself needs no room here, and must not hold up the files after
    // it.
    if (!cache_.ahead().is_just_missed(next.path)) return nullptr;
    is_overtaken_ = is_overtaken_ || run_ahead_.is_far_behind(next.reader);
  } else if (is_for_ring(next)) {
    is_overtaken_ = false;
  }
  const bool use_ring = may_use_ring(next);
  std::unique_ptr<PlannedFetch> flight(new (std::nothrow)
                                           PlannedFetch(cache_, std::move(next), use_ring));
  if (flight == nullptr) return nullptr;
  if (may_be_large(flight->file)) flight->most_opened = cache_.ahead().max_file();
  run_ahead_.begin(place, flight->file.reader);
  unplaced_.fetch_add(1, std::memory_order_relaxed);
  return flight;
}

Prefetcher::Flights Prefetcher::next_flights() {
  const std::lock_guard lock(mutex_);
  is_blocked_ = false;
  Flights flights;
  const std::deque<PlannedFile>& waiting = run_ahead_.waiting();
  if (is_stopped_ || waiting.empty() || in_flight_.load(std::memory_order_relaxed) >= depth_)
    return flights;
  const std::size_t place = is_for_ring(waiting.front()) ? run_ahead_.first_of_least_ahead() : 0;
  for (std::size_t n = place == 0 ? count_together() : 1; n != 0; --n) {
    auto flight = next_flight(place);
    if (flight == nullptr) break;
    flights.add(std::move(flight));
  }
  if (!flights.is_empty()) in_flight_.fetch_add(1, std::memory_order_relaxed);
  return flights;
}

bool Prefetcher::is_blocked() {
  const std::lock_guard lock(mutex_);
  return is_blocked_;
}

std::uint32_t Prefetcher::origin_of(const std::string& path) const {
  const auto& prefixes = options_.prefixes;
  const auto at = std::find_if(prefixes.begin(), prefixes.end(),
                               [&](const std::string& p) { return base::is_at_or_below(path, p); });
  return static_cast<std::uint32_t>(at - prefixes.begin());
}

IoEngine& Prefetcher::engine_for(const std::string& path) const {
  const bool by_open =
      whole_file_engine_ != nullptr && cache_.ahead().origin_of(path).traits().is_whole_in_one_read;
  return by_open ? *whole_file_engine_ : *engine_;
}

void Prefetcher::pump() {
  for (;;) {
    Flights flights = next_flights();
    if (flights.is_empty()) return;
    begin_all(std::move(flights));
  }
}

void Prefetcher::begin(std::unique_ptr<PlannedFetch> flight) {
  if (needs_fetch(*flight)) return submit(std::move(flight));
  one_has_ended(flight->file.reader, flight->file.sequence);
}

bool Prefetcher::needs_fetch(PlannedFetch& flight) {
  const bool is_hopeless =
      !may_use_ring(flight.file) && cache_.ahead().is_full() && !cache_.large().may_have_room();
  const Begin what = flight.fetch.begin();
  if (what == Begin::fetch && !is_hopeless) {
    flight.origin = origin_of(flight.file.path);
    return true;
  }
  note_placed(flight);
  account(flight.file, 0, /*was_asked=*/false);
  if (what == Begin::cached) {
    cached_.fetch_add(1, std::memory_order_relaxed);
    if (flight.fetch.is_wanted_again()) {
      watch(flight);
      return false;
    }
  } else if (what == Begin::demanded) {
    demanded_.fetch_add(1, std::memory_order_relaxed);
    cache_.stats().count(Counter::prefetch_late);
  } else {
    refuse(flight, Refused::no_room);
  }
  settle(flight.file.reader);
  return false;
}

bool Prefetcher::is_now_for_ring(const PlannedFile& file) {
  const std::lock_guard lock(mutex_);
  return is_for_ring(file);
}

Room Prefetcher::room_for(Fetch& of, const cache::FileAtOrigin& file) {
  auto& flight = static_cast<PlannedFetch&>(of);
  const Room room = find_room(flight, file);
  // Only after the room was taken. Otherwise another file could be promised the same room.
  note_placed(flight);
  return room;
}

Room Prefetcher::find_room(PlannedFetch& flight, const cache::FileAtOrigin& file) {
  flight.bytes = file.stat.size;
  if (is_large(flight.file, file.stat)) return Room::decline(k_large);
  if (file.stat.size > flight.file.most_bytes) return Room::decline(k_too_large);
  flight.is_by_origin = file.can_fill_ahead && file.stat.is_regular() &&
                        file.stat.size <= cache_.ahead().max_file() &&
                        !is_now_for_ring(flight.file) &&
                        !cache_.ahead().may_be_in_tier(flight.file.path);
  if (flight.is_by_origin)
    return flight.fetch.wants(file.stat) ? Room::by_origin(k_no_room) : Room::decline(k_is_there);
  using Next = cache::RecordFill::Next;
  switch (flight.fetch.accept(file)) {
    case Next::read: return Room::give(flight.fetch.room(), flight.fetch.wants_second_look());
    case Next::done: return Room::decline(k_is_there);
    case Next::refuse: break;
  }
  return Room::decline(reason_of(flight.fetch.reason(), file.stat.mode));
}

bool Prefetcher::take_starved() {
  const std::lock_guard lock(mutex_);
  return std::exchange(is_overtaken_, false) && is_blocked_;
}

std::optional<std::uint64_t> Prefetcher::first_unended(std::uint32_t reader) {
  const std::lock_guard lock(mutex_);
  return run_ahead_.first_unended(reader);
}

bool Prefetcher::is_stopped() {
  const std::lock_guard lock(mutex_);
  return is_stopped_;
}

bool Prefetcher::is_idle() {
  const std::lock_guard lock(mutex_);
  return run_ahead_.unended() == 0;
}

PrefetchCounts Prefetcher::counts() {
  const auto n = [](const auto& counter) { return counter.load(std::memory_order_relaxed); };
  const std::uint64_t measured = large_->measured();
  const std::lock_guard lock(mutex_);
  return {.fetched = n(fetched_),
          .fetched_bytes = n(fetched_bytes_) + large_->fetched_bytes(),
          .cached = n(cached_),
          .demanded = n(demanded_),
          .refused = n(refused_count_),
          .large = n(large_count_),
          .measured = measured,
          .bytes_to_come = large_->bytes_to_come(),
          .unmeasured = std::max(run_ahead_.unended(), measured) - measured};
}

std::vector<RefusedFile> Prefetcher::take_refused() {
  const std::lock_guard lock(mutex_);
  return std::exchange(refused_, {});
}

std::vector<Settled> Prefetcher::take_settled() {
  const std::vector<Settled> of_ring = watch_.take_settled();
  const std::lock_guard lock(mutex_);
  for (const Settled& row : of_ring) run_ahead_.settle(row.reader, row.files);
  return run_ahead_.take_settled();
}

void Prefetcher::stop(unsigned patience_ms) {
  if (!begin_stop()) return wait_for_stop(patience_ms);
  large_->begin_stop();
  // This engine stops first, because it can still hand fetches on to the others.
  if (remote_engine_ != nullptr) remote_engine_->stop(patience_ms);
  if (engine_ != nullptr) engine_->stop(patience_ms);
  if (whole_file_engine_ != nullptr) whole_file_engine_->stop(patience_ms);
  large_->stop(patience_ms);
  is_stop_over_.store(true, std::memory_order_release);
  stop_over_.notify();
}

// Waits longer than `patience_ms`, because the stopping thread also waits until an io_uring has
// closed its files.
void Prefetcher::wait_for_stop(unsigned patience_ms) {
  constexpr std::uint64_t k_others_patience_ms = 1000;
  stop_over_.wait_until([&] { return is_stop_over_.load(std::memory_order_acquire); },
                        (patience_ms + k_others_patience_ms) * base::k_ns_per_ms);
}

// Returns false if another thread has already begun the stop.
bool Prefetcher::begin_stop() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(is_stopped_, true)) return false;
  run_ahead_.clear();
  return true;
}

}  // namespace cube::prefetch
