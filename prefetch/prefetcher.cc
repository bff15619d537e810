#include "prefetch/prefetcher.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "cache/base/clock.h"
#include "cache/base/path.h"
#include "prefetch/decline_reason.h"

namespace cube::prefetch {
namespace {

using base::Counter;
using Begin = cache::BackgroundFill::Begin;

// Until what found no room is tried again though there is no more of it than before: memory may be short, not the ring.
constexpr std::uint64_t k_first_pause_ns = 1'000'000, k_longest_pause_ns = 500'000'000;

// A note is left out if there is no memory for it: a thread of an engine has nobody to throw to.
template <typename Do>
bool try_to(Do&& what) noexcept {
  try {
    what();
    return true;
  } catch (...) {
    return false;
  }
}

EngineChoice choice_of(base::EngineKind kind) {
  switch (kind) {
    case base::EngineKind::uring: return EngineChoice::uring;
    case base::EngineKind::threads: return EngineChoice::threads;
    case base::EngineKind::automatic: break;
  }
  return EngineChoice::automatic;
}

}  // namespace

Prefetcher::Prefetcher(cache::FileCache& cache, Options options)
    : cache_(cache),
      options_(std::move(options)),
      watch_(cache.ahead().ring()),
      large_(cache, *this, options_.nice),
      progress_(options_.progress != nullptr ? options_.progress : &own_progress_),
      depth_(options_.depth),
      pause_ns_(k_first_pause_ns) {}

std::unique_ptr<Prefetcher> Prefetcher::make(cache::FileCache& cache, Options options, std::string& why) {
  std::unique_ptr<Prefetcher> prefetcher(new Prefetcher(cache, std::move(options)));
  EngineOptions engine;
  engine.depth = prefetcher->options_.depth;
  engine.nice = prefetcher->options_.nice;
  prefetcher->engine_ = make_engine(choice_of(prefetcher->options_.engine), engine, *prefetcher, why);
  if (prefetcher->engine_ == nullptr) return nullptr;
  if (cache.ahead().has_remote() && !prefetcher->make_remote_engine(why)) return nullptr;
  if (cache.ahead().origins() == nullptr) return prefetcher;
  engine.origins = cache.ahead().origins();
  engine.max_file = cache.ahead().max_file();
  prefetcher->whole_file_engine_ = make_engine(EngineChoice::threads, engine, *prefetcher, why);
  if (prefetcher->whole_file_engine_ == nullptr) return nullptr;
  return prefetcher;
}

Prefetcher::~Prefetcher() { stop(50); }

bool Prefetcher::wants_more() {
  const std::lock_guard lock(mutex_);
  return !waiting_.is_full() && !is_stopped_;
}

bool Prefetcher::wants_more_of(std::uint32_t reader) {
  const std::lock_guard lock(mutex_);
  return takes(reader);
}

bool Prefetcher::takes(std::uint32_t reader) const {
  return !is_stopped_ && (!waiting_.is_full() || (is_blocked_ && waiting_.takes_beyond(reader)));
}

bool Prefetcher::offer(PlannedFile& file) {
  if (whole_file_engine_ != nullptr) {
    if (!wants_more_of(file.reader)) return false;
    file.place = cache_.ahead().origin_of(file.path).place_of(file.path);
  }
  {
    const std::lock_guard lock(mutex_);
    if (!takes(file.reader)) return false;
    waiting_.add(file);
    unended_.fetch_add(1, std::memory_order_relaxed);
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
  large_.set_depth(depth);
  engine_->set_depth(depth);
  if (whole_file_engine_ != nullptr) whole_file_engine_->set_depth(depth);
  if (remote_engine_ != nullptr) remote_engine_->set_depth(depth);
  pump();
}

// Under the lock.
bool Prefetcher::is_for_ring_alone() const { return cache_.ahead().is_full() || is_resident_full_; }

// Under the lock. The resident pool needs no accounts: when it is full, the next fetch goes to the ring.
bool Prefetcher::has_room(const PlannedFile& file) {
  if (!is_for_ring(file)) return true;
  if (credit_ < average_) {
    const std::uint64_t promised = unplaced_.load(std::memory_order_relaxed) * average_;
    const std::uint64_t room = cache_.ahead().ring_room();
    if (room <= room_when_put_back_ && base::monotonic_ns() < not_before_ns_) return false;
    credit_ = room > promised ? room - promised : 0;
  }
  if (credit_ < average_) return false;
  credit_ -= average_;
  return true;
}

// Under the lock.
std::unique_ptr<Prefetcher::PlannedFetch> Prefetcher::next_flight(std::size_t place) {
  PlannedFile& next = waiting_.at(place);
  is_blocked_ = !has_room(next);
  if (is_blocked_) {
    // It needs no room, and those behind it may be wanted still.
    if (!cache_.ahead().is_just_missed(next.path)) return nullptr;
    is_overtaken_ = is_overtaken_ || waiting_.is_far_behind(next.reader);
  } else if (is_for_ring(next)) {
    is_overtaken_ = false;
  }
  const bool use_ring = may_use_ring(next);
  std::unique_ptr<PlannedFetch> flight(new (std::nothrow) PlannedFetch(cache_, std::move(next), use_ring));
  if (flight == nullptr) return nullptr;
  // The queue gives it up when it is noted elsewhere, so that it is always to be seen.
  if (!try_to([&] { under_way_.add(flight->file.reader, flight->file.sequence); })) {
    next = std::move(flight->file);
    return nullptr;
  }
  waiting_.take(place, flight->file.reader);
  unplaced_.fetch_add(1, std::memory_order_relaxed);
  return flight;
}

Prefetcher::Flights Prefetcher::next_flights() {
  const std::lock_guard lock(mutex_);
  is_blocked_ = false;
  Flights flights;
  if (is_stopped_ || waiting_.is_empty() || in_flight_.load(std::memory_order_relaxed) >= depth_) return flights;
  const std::size_t place = is_for_ring(waiting_.at(0)) ? waiting_.first_of_least_ahead() : 0;
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
  const auto at =
      std::find_if(prefixes.begin(), prefixes.end(), [&](const std::string& p) { return base::is_at_or_below(path, p); });
  return static_cast<std::uint32_t>(at - prefixes.begin());
}

IoEngine& Prefetcher::engine_for(const std::string& path) const {
  const bool by_open = whole_file_engine_ != nullptr && cache_.ahead().origin_of(path).traits().is_whole_in_one_read;
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
  const bool is_hopeless = !may_use_ring(flight.file) && cache_.ahead().is_full() && !cache_.large().may_have_room();
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

Room Prefetcher::room_for(Fetch& of, const cache::FileAtOrigin& file) {
  auto& flight = static_cast<PlannedFetch&>(of);
  note_placed(flight);
  flight.bytes = file.stat.size;
  if (is_large(flight.file, file.stat)) return Room::decline(k_large);
  if (file.stat.size > flight.file.most_bytes) return Room::decline(k_too_large);
  using Next = cache::RecordFill::Next;
  switch (flight.fetch.accept(file)) {
    case Next::read: return Room::give(flight.fetch.room(), flight.fetch.wants_second_look());
    case Next::done: return Room::decline(k_is_there);
    case Next::refuse: break;
  }
  return Room::decline(reason_of(flight.fetch.reason(), file.stat.mode));
}

void Prefetcher::note_placed(PlannedFetch& flight) {
  if (!std::exchange(flight.is_placed, true)) unplaced_.fetch_sub(1, std::memory_order_relaxed);
}

void Prefetcher::watch(const PlannedFetch& flight) {
  const cache::RamTier::PlaceInRegion& place = flight.fetch.place();
  // Else it is one that nobody knows of, and given up as such.
  try_to([&] { watch_.add({place.segment, place.generation, place.offset}, flight.file.reader, flight.file.sequence); });
}

void Prefetcher::published(const PlannedFetch& flight, std::uint64_t bytes) {
  fetched_.fetch_add(1, std::memory_order_relaxed);
  fetched_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  cache_.stats().count(Counter::prefetch_fetched);
  const cache::RamTier::PlaceInRegion& place = flight.fetch.place();
  if (place.is_in_ring) {
    watch(flight);
  } else {
    settle(flight.file.reader);
  }
  const std::lock_guard lock(mutex_);
  pause_ns_ = k_first_pause_ns;
  not_before_ns_ = 0;
  if (!place.is_in_ring) is_resident_full_ = false;
  // A larger file does not go to the ring, which must not wait for room for it.
  const auto of_record = std::min<std::uint64_t>(place.bytes, cache_.ahead().segment_bytes() / 4);
  average_ += (static_cast<std::int64_t>(of_record) - static_cast<std::int64_t>(average_)) / 16;
}

bool Prefetcher::put_back(PlannedFetch& flight) {
  flight.fetch.give_up();
  const std::lock_guard lock(mutex_);
  const std::uint32_t reader = flight.file.reader;
  const std::uint64_t sequence = flight.file.sequence;
  if (is_stopped_ || !try_to([&] { waiting_.put_back(flight.file); })) return false;
  under_way_.leave(reader, sequence);
  credit_ = 0;
  is_blocked_ = true;
  // It is too large, even if is_full() says that smaller ones fit.
  is_resident_full_ = true;
  // The next one of its size would come from another node for nothing, too.
  average_ = std::max(average_, std::min(flight.bytes, cache_.ahead().segment_bytes() / 4));
  const std::uint64_t now = base::monotonic_ns();
  if (now < not_before_ns_) return true;
  room_when_put_back_ = cache_.ahead().ring_room();
  not_before_ns_ = now + pause_ns_;
  pause_ns_ = std::min(2 * pause_ns_, k_longest_pause_ns);
  return true;
}

void Prefetcher::refuse(const PlannedFile& file, Refused why, int error, std::uint64_t bytes, std::uint64_t missing) {
  refused_count_.fetch_add(1, std::memory_order_relaxed);
  if (!options_.keep_refused) return;
  const std::lock_guard lock(mutex_);
  // The path may still be looked at by the engine; a copy is not.
  try_to([&] { refused_.push_back({file, why, error, bytes, missing}); });
}

void Prefetcher::settle(std::uint32_t reader) {
  const std::lock_guard lock(mutex_);
  waiting_.note_over(reader, 1);
  try_to([&] { add_settled(settled_, reader, 1); });
}

void Prefetcher::note_settled(const std::vector<Settled>& rows) {
  const std::lock_guard lock(mutex_);
  for (const Settled& row : rows) waiting_.note_over(row.reader, row.files);
}

bool Prefetcher::take_starved() {
  const std::lock_guard lock(mutex_);
  return std::exchange(is_overtaken_, false) && is_blocked_;
}

void Prefetcher::declined(PlannedFetch& flight, int reason, bool& waits) {
  switch (reason) {
    case k_is_there: cached_.fetch_add(1, std::memory_order_relaxed); break;
    case k_no_room:
      waits = may_use_ring(flight.file);
      if (!waits) refuse(flight, Refused::no_room);
      break;
    case k_large:  // there can be no thread for it
    case k_too_large: refuse(flight, Refused::too_large); break;
    case k_directory: refuse(flight, Refused::directory); break;
    case k_not_a_file: refuse(flight, Refused::not_a_file); break;
    default: refuse(flight, Refused::busy); break;
  }
}

void Prefetcher::ended(Fetch& of, const FetchResult& result) {
  std::unique_ptr<PlannedFetch> flight(static_cast<PlannedFetch*>(&of));
  base::Stats& stats = cache_.stats();
  stats.count(Counter::origin_opens, result.opens);
  stats.count(Counter::origin_stats, result.stats);
  stats.count(Counter::origin_reads, result.reads);
  stats.count(Counter::origin_bytes, result.bytes);
  const bool is_declined = result.ending == Ending::declined;
  if (is_declined && result.reason == k_ask_origin) return ask_origin(std::move(flight));
  const bool is_remote = is_declined && result.reason == k_published;
  bool is_over = true, waits = false, is_wrong = false;
  // One of several cannot go on alone: it is not counted.
  const bool is_alone = flight->is_first && flight->is_last;
  if (is_alone && is_declined && result.reason == k_large && hand_on(flight)) return;
  const bool has_no_name =
      is_alone && result.ending == Ending::failed && (result.error == ENOENT || result.error == ENAMETOOLONG);
  if (has_no_name && hand_on_range(flight, is_wrong)) return;
  switch (result.ending) {
    case Ending::whole:
      if (flight->is_first) {
        took_ns_.fetch_add(base::monotonic_ns() - flight->began_ns, std::memory_order_relaxed);
        took_fetches_.fetch_add(1, std::memory_order_relaxed);
      }
      if (result.data_hash) flight->fetch.note_hash(*result.data_hash);
      if (flight->fetch.publish()) {
        published(*flight, result.bytes);
        is_over = false;
      } else {
        refuse(*flight, Refused::busy);
      }
      break;
    case Ending::declined:
      is_over = !is_remote;
      is_remote ? published(*flight, flight->bytes) : declined(*flight, result.reason, waits);
      break;
    case Ending::failed:
      if (is_wrong) {
        refuse(*flight, Refused::bad_range);
        break;
      }
      refuse(*flight, result.error == ENOENT || result.error == ENOTDIR ? Refused::missing : Refused::failed, result.error);
      break;
    case Ending::changed: refuse(*flight, Refused::busy); break;
    case Ending::cancelled: break;
    case Ending::abandoned:
      if (result.room_is_lost) flight->fetch.lose_room();
      break;
  }
  if (flight->fetch.was_fetched_twice()) stats.count(Counter::prefetch_duplicate);
  note_placed(*flight);
  const bool is_last = flight->is_last;
  if (waits && put_back(*flight)) {
    flight.reset();
    if (is_last) in_flight_.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  const std::uint64_t bytes = result.ending == Ending::whole ? result.bytes : is_remote ? flight->bytes : 0;
  account(flight->file, bytes, result.ending != Ending::cancelled);
  const std::uint32_t reader = flight->file.reader;
  const std::uint64_t sequence = flight->file.sequence;
  if (is_over) settle(reader);
  flight.reset();
  one_has_ended(reader, sequence, is_last);
  if (is_last) pump();
}

std::optional<std::uint64_t> Prefetcher::first_unended(std::uint32_t reader) {
  const std::lock_guard lock(mutex_);
  const std::optional<std::uint64_t> first = under_way_.first_of(reader);
  const std::optional<std::uint64_t> next = waiting_.first_of(reader);
  return next ? std::min(first.value_or(*next), *next) : first;
}

void Prefetcher::one_has_ended(std::uint32_t reader, std::uint64_t sequence, bool is_last) {
  bool is_running_low = false;
  {
    const std::lock_guard lock(mutex_);
    under_way_.leave(reader, sequence);
    is_running_low = waiting_.is_running_low();
  }
  if (is_last) in_flight_.fetch_sub(1, std::memory_order_relaxed);
  const bool was_last = unended_.fetch_sub(1, std::memory_order_release) == 1;
  // Not for each: who offers shall sleep while there is enough to do.
  if (was_last || is_running_low) progress_->notify();
}

PrefetchCounts Prefetcher::counts() const {
  const auto n = [](const auto& counter) { return counter.load(std::memory_order_relaxed); };
  const unsigned measured = large_.measured(), unended = n(unended_);
  return {.fetched = n(fetched_),
          .fetched_bytes = n(fetched_bytes_) + large_.fetched_bytes(),
          .cached = n(cached_),
          .demanded = n(demanded_),
          .refused = n(refused_count_),
          .large = n(large_count_),
          .measured = measured,
          .bytes_to_come = large_.bytes_to_come(),
          .unmeasured = unended - std::min(unended, measured)};
}

std::vector<RefusedFile> Prefetcher::take_refused() {
  const std::lock_guard lock(mutex_);
  return std::exchange(refused_, {});
}

std::vector<Settled> Prefetcher::take_settled() {
  const std::lock_guard lock(mutex_);
  return std::exchange(settled_, {});
}

void Prefetcher::stop(unsigned patience_ms) {
  if (!begin_stop()) return wait_for_stop(patience_ms);
  large_.begin_stop();
  // The others get what it hands on meanwhile.
  if (remote_engine_ != nullptr) remote_engine_->stop(patience_ms);
  if (engine_ != nullptr) engine_->stop(patience_ms);
  if (whole_file_engine_ != nullptr) whole_file_engine_->stop(patience_ms);
  large_.stop(patience_ms);
  is_stop_over_.store(true, std::memory_order_release);
  stop_over_.notify();
}

// The other one may abandon what hangs, and waits for the files of a ring to be closed.
void Prefetcher::wait_for_stop(unsigned patience_ms) {
  constexpr std::uint64_t k_others_patience_ms = 1000;
  stop_over_.wait_until([&] { return is_stop_over_.load(std::memory_order_acquire); },
                        (patience_ms + k_others_patience_ms) * base::k_ns_per_ms);
}

// False: another has begun it.
bool Prefetcher::begin_stop() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(is_stopped_, true)) return false;
  unended_.fetch_sub(static_cast<unsigned>(waiting_.size()), std::memory_order_relaxed);
  waiting_.clear();
  return true;
}

}  // namespace cube::prefetch
