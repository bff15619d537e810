#include "cache/fill/demand_open.h"

#include <cerrno>

#include "cache/base/clock.h"
#include "cache/base/hash.h"
#include "cache/base/memory/copy_bytes.h"
#include "cache/base/process/block_signals.h"
#include "cache/base/process/went_out.h"
#include "cache/fill/background_fill.h"
#include "cache/fill/large/large_file.h"
#include "cache/fill/partial_fill.h"
#include "cache/fill/recent_misses.h"
#include "cache/fill/tier_open.h"
#include "cache/region/fetch_scope.h"
#include "cache/region/life/room_for_others.h"
#include "cache/region/posix_locks.h"

namespace cube::cache {
namespace {

using base::Counter;

// Smaller files are fetched as a whole, because the program could not do much before they arrive.
constexpr std::uint64_t k_in_parts_from = 1 << 20;

}  // namespace

OpenOutcome DemandOpen::open(std::uint64_t hash) {
  OpenOutcome outcome;
  if (join_parts(hash, outcome)) return outcome;
  keep_room_for_others(parts_.region);
  const bool has_room = !parts_.ram.is_full() || parts_.ram.find_of_others(request_.key, hash);
  // Without a ring, no fetch can find room for the file, so it is opened at the origin immediately.
  if (!has_room && !parts_.ram.ring().is_made()) return open_uncached(Counter::bypassed_full);
  const std::uint64_t began = base::monotonic_ns();
  outcome = open_in_flight(hash, has_room);
  if (outcome.pin && !outcome.was_fetched)
    parts_.stats().count(Counter::slow_hit_ns, base::monotonic_ns() - began);
  return outcome;
}

OpenOutcome DemandOpen::open_in_flight(std::uint64_t hash, bool has_room) {
  const bool has_tiers = parts_.has_tiers();
  const bool has_ring = has_tiers && parts_.ram.ring().is_made();
  FetchScope scope;
  SingleFlight::Ticket ticket;
  OpenOutcome outcome;
  bool waited_for_prefetch = false;
  // With O_NONBLOCK, the program may be opening a FIFO. The holder of the flight may be blocked in
  // its own open of the same FIFO, so this open does not wait.
  const bool may_wait = (request_.flags & O_NONBLOCK) == 0;
  const SingleFlight::Outcome flight =
      parts_.flights.begin(hash, ticket, &waited_for_prefetch, may_wait);
  const bool is_left = flight == SingleFlight::Outcome::too_long;
  // While this open waited for the flight, another open of this process may have begun to fetch the
  // file in parts. Another fetch may also have ended just now, so find_again() looks for its
  // record.
  if (is_left && join_parts(hash, outcome)) return outcome;
  scope.hold(ticket.hold());
  if (find_again(hash, waited_for_prefetch, outcome)) return outcome;
  if (is_left) return open_uncached(Counter::bypassed_busy);
  // From here on, the program waits for the origin, and no longer for another fetch.
  scope.begin_wait(parts_.region.own_process());
  if (!has_room) note_miss(parts_.region, hash);
  const bool may_be_in_tier = has_tiers && (has_room || has_ring);
  if (may_be_in_tier && open_from_tier(has_ring ? Lane::demand_with_ring : Lane::demand, outcome))
    return outcome;
  // The ring is useful only if a tier would store the file.
  const bool may_pass =
      has_ring && (parts_.ram.ring().has_disk_writer() || parts_.remote.take_offers());
  if (!has_room && !may_pass) {
    // The file will not be in RAM, so the flight ends now. Otherwise the processes that wait for it
    // would open the file one after another.
    ticket = {};
    for (Tier* const tier : parts_.remote) tier->note_not_fetched(request_.key);
    return open_uncached(Counter::bypassed_full);
  }
  outcome = fetch(may_pass ? Lane::demand_with_ring : Lane::demand, ticket);
  outcome.was_fetched = outcome.pin || outcome.is_filling;
  for (Tier* const tier : parts_.remote) {
    if (outcome.pin) {
      tier->note_fetched(request_.key, outcome.pin);
    } else {
      tier->note_not_fetched(request_.key);
    }
  }
  return outcome;
}

// Checks the record for freshness, because its stat may be older than this open or this job.
bool DemandOpen::find_again(std::uint64_t hash, bool waited_for_prefetch, OpenOutcome& outcome) {
  outcome.pin = parts_.ram.find(request_.key, hash);
  if (!outcome.pin ||
      !parts_.freshness.is_fresh(*outcome.pin, request_.path, outcome.has_waited_for_stat)) {
    outcome.pin.release();
    return false;
  }
  parts_.stats().count(Counter::hits_ram);
  if (outcome.pin->is_prefetched()) parts_.note_opened(*outcome.pin, waited_for_prefetch);
  return true;
}

bool DemandOpen::open_from_tier(Lane lane, OpenOutcome& outcome) {
  return TierOpen(parts_, request_, lane).open(outcome);
}

bool DemandOpen::may_be_large(Counter reason) const {
  if (parts_.rules.block == 0 || !parts_.serves_in_parts) return false;
  const bool is_known = parts_.region.header().has_chunks.load(std::memory_order_relaxed) != 0;
  return reason == Counter::bypassed_size || (reason == Counter::bypassed_full && is_known);
}

OpenOutcome DemandOpen::open_plain(Counter reason) {
  base::note_way_out();
  OpenOutcome outcome;
  // An open in a signal handler may have interrupted a reader of its own thread.
  if (reason != Counter::bypassed_busy)
    LargeFile::await_readers(parts_, base::hash_path(request_.key));
  request_.before_kernel_open();
  const long fd = base::sys::open(request_.path, request_.flags);
  if (base::sys::failed(fd)) {
    outcome.error = static_cast<int>(-fd);
  } else {
    outcome.kernel_fd = static_cast<int>(fd);
    if (may_be_large(reason)) outcome.unless_large = reason;
  }
  if (!outcome.unless_large) parts_.count_unserved(reason, request_.key);
  return outcome;
}

// If the origin lacks the path, it may still exist in the kernel's file tree.
OpenOutcome DemandOpen::fail(const Origin& origin, int error) {
  if (error == ENOENT && !origin.traits().knows_all_names)
    return open_plain(Counter::bypassed_kind);
  parts_.count_unserved(error == EISDIR ? Counter::bypassed_kind : Counter::bypassed_error,
                        request_.key);
  OpenOutcome outcome;
  outcome.error = error;
  return outcome;
}

OpenOutcome DemandOpen::open_uncached(Counter reason) {
  const Origin& origin = parts_.freshness.origin_of(request_.key);
  if (origin.traits().has_kernel_fd) return open_plain(reason);
  OpenedPlace place;
  // If the reason is another fetch in progress, may_fill saves a second read by an origin that
  // fills RAM itself.
  const auto opened = origin.open({.key = request_.key,
                                   .path = request_.path,
                                   .flags = request_.flags,
                                   .most = parts_.rules.max_file,
                                   .may_fill = reason == Counter::bypassed_busy},
                                  place);
  if (!opened) return fail(origin, opened.error().value);
  OpenOutcome outcome;
  return take_filled(*place.opened(), outcome) ? std::move(outcome)
                                               : hand_over(*place.opened(), reason);
}

bool DemandOpen::take_filled(const Opened& opened, OpenOutcome& outcome) {
  if (!opened.file().is_in_ram) return false;
  outcome.pin = parts_.ram.find_of_origin(opened.file().origin, RecordKind::file, request_.key,
                                          base::hash_path(request_.key));
  if (!outcome.pin) return false;
  // The process that filled the record may have another view.
  parts_.ram.show_to_own_view(*outcome.pin);
  count_miss(/*is_of_bucket=*/true);
  outcome.was_fetched = true;
  return true;
}

void DemandOpen::count_miss(bool is_of_bucket) {
  parts_.stats().count(Counter::misses);
  if (is_of_bucket) parts_.stats().count(Counter::bucket_misses);
}

OpenOutcome DemandOpen::hand_over(Opened& opened, Counter reason) {
  OpenOutcome outcome;
  const FileAtOrigin& file = opened.file();
  const bool is_of_mount = file.fd >= 0;
  if (file.comes_in_blocks && may_be_large(reason) && file.stat.size > parts_.rules.max_file)
    outcome.object = LargeFile::begin_object(parts_, request_.key, file.stat);
  if (outcome.object != nullptr) {
    parts_.stats().count(Counter::large_opens);
    return outcome;
  }
  if (!is_of_mount) request_.before_kernel_open();
  const auto fd = opened.hand_over(request_.flags);
  outcome.is_directory = (file.stat.mode & S_IFMT) == S_IFDIR;
  if (fd) {
    outcome.kernel_fd = *fd;
    if (is_of_mount && may_be_large(reason)) outcome.unless_large = reason;
  } else {
    outcome.error = fd.error().value;
  }
  if (!outcome.unless_large) parts_.count_unserved(reason, request_.key);
  return outcome;
}

bool DemandOpen::serve_in_parts(RecordFill& fill, Opened& opened, SingleFlight::Ticket& flight,
                                OpenOutcome& outcome) {
  const bool is_worth_it = opened.file().fd >= 0 && opened.file().stat.size >= k_in_parts_from;
  if (request_.serve_fill == nullptr || !parts_.serves_in_parts || !is_worth_it) return false;
  // A signal handler must not jump out of this function before the program's fd is registered for
  // the fill.
  const base::BlockSignals block;
  PartialFill* const parts = PartialFill::begin(parts_, fill, flight);
  if (parts == nullptr) return false;
  outcome.kernel_fd = opened.hand_over(request_.flags).value_or(-1);
  outcome.is_filling =
      outcome.kernel_fd >= 0 && request_.serve_fill(request_.who, *parts, outcome.kernel_fd);
  if (outcome.is_filling) {
    parts_.stats().count(Counter::misses);
  } else {
    parts_.count_unserved(Counter::bypassed_busy, request_.key);
  }
  if (!outcome.is_filling) parts->end();
  if (outcome.kernel_fd < 0) outcome.error = EINTR;
  return true;
}

bool DemandOpen::join_parts(std::uint64_t hash, OpenOutcome& outcome) {
  if (request_.serve_fill == nullptr || !PartialFill::may_be_coming(hash)) return false;
  base::note_way_out();
  const std::uint64_t began = base::monotonic_ns();
  request_.before_kernel_open();
  OriginFd fd(static_cast<int>(base::sys::open(request_.path, request_.flags)));
  parts_.stats().count(Counter::origin_opens);
  if (!fd) return false;
  const auto stat = stat_fd(fd.get(), k_ask_server);
  parts_.stats().count(Counter::origin_stats);
  if (!stat) return false;
  const base::BlockSignals block;
  PartialFill* const parts = PartialFill::join(request_.key, hash, *stat);
  if (parts == nullptr) return false;
  outcome.is_filling = request_.serve_fill(request_.who, *parts, fd.get());
  if (!outcome.is_filling) {
    parts->end();
    return false;
  }
  outcome.kernel_fd = fd.release();
  outcome.was_fetched = true;
  parts_.stats().count(Counter::misses);
  note_miss_time(began);
  return true;
}

void DemandOpen::note_miss_time(std::uint64_t began_ns) {
  const std::uint64_t took = base::monotonic_ns() - began_ns;
  parts_.stats().miss_latency.add(took);
  parts_.stats().count(Counter::miss_ns, took);
}

bool DemandOpen::may_fetch_neighbours() const {
  return parts_.fetches_ahead && parts_.freshness.origins() != nullptr && !parts_.ram.is_full() &&
         parts_.freshness.origins()->known_bytes() <= parts_.ram.resident_bytes() / 8 * 7;
}

OpenOutcome DemandOpen::fetch(Lane lane, SingleFlight::Ticket& flight) {
  base::note_way_out();
  const std::uint64_t began = base::monotonic_ns();
  const Origin& origin = parts_.freshness.origin_of(request_.key);
  if (origin.traits().has_kernel_fd) {
    LargeFile::await_readers(parts_, base::hash_path(request_.key));
    request_.before_kernel_open();
  }
  RecordFill fill(parts_.ram, parts_.rules, request_.key, lane);
  const OriginOpen wish{.key = request_.key,
                        .path = request_.path,
                        .flags = request_.flags,
                        .most = parts_.rules.max_file,
                        .with_neighbours = may_fetch_neighbours(),
                        .may_fill = true,
                        .stats = &parts_.stats()};
  OpenedPlace place;
  const auto opened = origin.open(wish, place);
  OpenOutcome outcome = opened ? fetch_opened(origin, *place.opened(), fill, flight)
                               : fail(origin, opened.error().value);
  if (outcome.was_fetched) note_miss_time(began);
  // Keeps the neighbours even if the open found a directory. Their bytes have already been read,
  // and the window is read only once.
  if (place.opened() != nullptr) keep_neighbours(origin, *place.opened());
  return outcome;
}

OpenOutcome DemandOpen::fetch_opened(const Origin& origin, Opened& opened, RecordFill& fill,
                                     SingleFlight::Ticket& flight) {
  const FileAtOrigin& file = opened.file();
  const bool has_been_read = origin.traits().is_whole_in_one_read;
  const bool is_of_bucket = origin.traits().is_counted_elsewhere;
  OpenOutcome outcome;
  if (PosixLocks::may_hold(file.fd)) return hand_over(opened, Counter::bypassed_flags);
  if (take_filled(opened, outcome)) return outcome;
  switch (fill.accept(file)) {
    case RecordFill::Next::refuse: return hand_over(opened, fill.reason());
    case RecordFill::Next::done:
      if (has_been_read) {
        count_miss(is_of_bucket);
      } else {
        parts_.stats().count(Counter::hits_ram);
      }
      outcome.was_fetched = has_been_read;
      outcome.pin = std::move(fill.pin());
      if (outcome.pin->is_prefetched())
        parts_.note_opened(*outcome.pin, /*waited_for_prefetch=*/false);
      return outcome;
    case RecordFill::Next::read: break;
  }
  const auto from_tier =
      has_been_read ? std::nullopt : parts_.fill_from_tier(request_.key, file.stat, fill.room());
  outcome.was_fetched = !from_tier;
  if (!from_tier && serve_in_parts(fill, opened, flight, outcome)) return outcome;
  if (const auto read = from_tier ? base::Result<void>() : opened.read_whole(fill.room()); !read) {
    if (read.error().value != EINTR) return hand_over(opened, Counter::bypassed_busy);
    // A signal has ended the program's wait. If the program got an fd now, its own read would start
    // another wait.
    parts_.count_unserved(Counter::bypassed_error, request_.key);
    outcome.was_fetched = false;
    outcome.error = EINTR;
    return outcome;
  }
  // Bytes from a tier belong to this stat, even if the file was changed after the stat. So a second
  // look is needed only if the stat is in doubt.
  if ((from_tier ? fill.is_stat_in_doubt() : fill.wants_second_look()) && !opened.is_unchanged())
    return hand_over(opened, Counter::bypassed_busy);
  if (from_tier) fill.note_from_tier(from_tier->data_hash);
  if (const auto hash = opened.data_hash(); hash) fill.note_hash(*hash);
  if (!fill.publish()) return hand_over(opened, fill.reason());
  if (from_tier) {
    parts_.stats().count(from_tier->tier->hits());
  } else {
    count_miss(is_of_bucket);
  }
  outcome.pin = std::move(fill.pin());
  return outcome;
}

void DemandOpen::keep_neighbours(const Origin& origin, Opened& opened) {
  Opened::Neighbour neighbour;
  while (!parts_.ram.is_full() && opened.next_neighbour(neighbour)) {
    // Skips a neighbour that lies below the prefix of another origin, because only that origin may
    // fetch it.
    if (&parts_.freshness.origin_of(neighbour.key) == &origin) keep_neighbour(neighbour);
  }
}

void DemandOpen::keep_neighbour(const Opened::Neighbour& neighbour) {
  BackgroundFill fill(parts_, neighbour.key, /*use_ring=*/false);
  if (fill.begin() != BackgroundFill::Begin::fetch ||
      fill.accept(neighbour.file) != RecordFill::Next::read)
    return;
  base::copy_bytes(fill.room(), neighbour.data, neighbour.file.stat.size);
  fill.note_hash(neighbour.data_hash);
  if (fill.publish()) parts_.stats().count(Counter::prefetch_fetched);
}

}  // namespace cube::cache
