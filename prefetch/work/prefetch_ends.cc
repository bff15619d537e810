// Part of Prefetcher: ends a fetch. It publishes the record, puts the file back, or refuses the
// file, and wakes the waiting threads.
#include "cache/base/clock.h"
#include "prefetch/work/decline_reason.h"
#include "prefetch/work/prefetcher.h"
#include "prefetch/work/try_to.h"

namespace cube::prefetch {

using base::Counter;

void Prefetcher::note_placed(PlannedFetch& flight) {
  if (!std::exchange(flight.is_placed, true)) unplaced_.fetch_sub(1, std::memory_order_relaxed);
}

void Prefetcher::watch(const PlannedFetch& flight) {
  // If there is no memory for the note, RingWatch does not know the record, and later gives up its
  // segment as unknown.
  try_to([&] { watch_.add(flight.fetch.place(), flight.file.reader, flight.file.sequence); });
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
  if (!place.is_in_ring) is_resident_full_ = false;
  run_ahead_.note_placed(place.bytes);
}

bool Prefetcher::put_back(PlannedFetch& flight) {
  flight.fetch.give_up();
  const std::lock_guard lock(mutex_);
  if (is_stopped_ || !try_to([&] { run_ahead_.put_back(flight.file); })) return false;
  is_blocked_ = true;
  // This file is too large for the room that is left, even if is_full() says that smaller files
  // fit.
  is_resident_full_ = true;
  run_ahead_.note_no_room(flight.bytes, base::monotonic_ns());
  return true;
}

void Prefetcher::refuse(const PlannedFile& file, Refused why, int error, std::uint64_t bytes,
                        std::uint64_t missing) {
  refused_count_.fetch_add(1, std::memory_order_relaxed);
  if (!options_.keep_refused) return;
  const std::lock_guard lock(mutex_);
  // Copies the file, because the engine might still read the path of the original.
  try_to([&] { refused_.push_back({file, why, error, bytes, missing}); });
}

void Prefetcher::settle(std::uint32_t reader) {
  const std::lock_guard lock(mutex_);
  try_to([&] { run_ahead_.settle(reader, 1); });
}

void Prefetcher::declined(PlannedFetch& flight, int reason, bool& waits) {
  switch (reason) {
    case k_is_there: cached_.fetch_add(1, std::memory_order_relaxed); break;
    case k_no_room:
      waits = may_use_ring(flight.file);
      if (!waits) refuse(flight, Refused::no_room);
      break;
    case k_large:  // no thread can be started for a large file
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
  if (!result.is_counted_elsewhere) stats.count(Counter::origin_bytes, result.bytes);
  const bool is_declined = result.ending == Ending::declined;
  if (is_declined && result.reason == k_ask_origin) return ask_origin(std::move(flight));
  const bool is_remote = is_declined && result.reason == k_published;
  bool is_over = true, waits = false, is_wrong = false;
  // A fetch that shares a request cannot continue alone, because only the request counts as in
  // flight.
  const bool is_alone = flight->is_first && flight->is_last;
  if (is_alone && is_declined && result.reason == k_large && hand_on(flight)) return;
  const bool has_no_name = is_alone && result.ending == Ending::failed &&
                           (result.error == ENOENT || result.error == ENAMETOOLONG);
  if (has_no_name && hand_on_range(flight, is_wrong)) return;
  switch (result.ending) {
    case Ending::whole:
      if (flight->is_first) {
        took_ns_.fetch_add(base::monotonic_ns() - flight->began_ns, std::memory_order_relaxed);
        took_fetches_.fetch_add(1, std::memory_order_relaxed);
      }
      if (result.data_hash) flight->fetch.note_hash(*result.data_hash);
      if (flight->is_by_origin ? flight->fetch.take_filled() : flight->fetch.publish()) {
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
      refuse(*flight,
             result.error == ENOENT || result.error == ENOTDIR ? Refused::missing : Refused::failed,
             result.error);
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
  const std::uint64_t bytes = result.ending == Ending::whole ? result.bytes
                              : is_remote                    ? flight->bytes
                                                             : 0;
  account(flight->file, bytes, result.ending != Ending::cancelled);
  const std::uint32_t reader = flight->file.reader;
  const std::uint64_t sequence = flight->file.sequence;
  if (is_over) settle(reader);
  flight.reset();
  one_has_ended(reader, sequence, is_last);
  if (is_last) pump();
}

void Prefetcher::one_has_ended(std::uint32_t reader, std::uint64_t sequence, bool is_last) {
  if (is_last) in_flight_.fetch_sub(1, std::memory_order_relaxed);
  bool wants_more = false;
  {
    const std::lock_guard lock(mutex_);
    run_ahead_.end(reader, sequence);
    wants_more = run_ahead_.is_running_low();
  }
  // Does not notify after each file, so that the offering thread sleeps while there is enough to
  // do.
  if (wants_more) progress_->notify();
}

}  // namespace cube::prefetch
