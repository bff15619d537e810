#include "cache/tier/shared/cluster_offers.h"

#include <algorithm>

#include "cache/base/clock.h"
#include "cache/base/hash.h"
#include "cache/region/segments.h"

namespace cube::cache {
namespace {

constexpr std::uint64_t k_between_tries_ns = 250 * base::k_ns_per_ms,
                        k_look_again_ns = 100 * base::k_ns_per_ms,
                        k_pushed_waits_ns = 2'000 * base::k_ns_per_ms,
                        k_first_retry_ns = 2'000 * base::k_ns_per_ms,
                        k_no_blocks_ns = 60'000 * base::k_ns_per_ms,
                        k_longest_walk_ns = 2 * base::k_ns_per_ms;
constexpr unsigned k_most_doublings = 4;

}  // namespace

ClusterOffers::ClusterOffers(RamTier& ram, const ClusterPaths& paths, ClusterClient& client,
                             Options options)
    : ram_(ram),
      paths_(paths),
      client_(client),
      options_(std::move(options)),
      blocks_(ram.region(), options_.block),
      leased_block_(ram.region(), options_.block) {}

bool ClusterOffers::push(const Pin& pin, std::uint64_t lease_cas) {
  for (Pushed& place : pushed_) {
    std::uint32_t free = Pushed::free;
    if (!place.state.compare_exchange_strong(free, Pushed::busy, std::memory_order_acquire))
      continue;
    place.pin = pin.duplicate().keep();
    place.cas = lease_cas;
    place.until_ns = base::monotonic_ns() + k_pushed_waits_ns;
    place.state.store(Pushed::full, std::memory_order_release);
    return true;
  }
  return false;
}

bool ClusterOffers::push_block(const LeasedBlock& block) {
  for (PushedBlock& place : pushed_blocks_) {
    std::uint32_t free = Pushed::free;
    if (!place.state.compare_exchange_strong(free, Pushed::busy, std::memory_order_acquire))
      continue;
    place.block = block;
    place.until_ns = base::monotonic_ns() + k_pushed_waits_ns;
    place.state.store(Pushed::full, std::memory_order_release);
    return true;
  }
  return false;
}

bool ClusterOffers::may_share_block_of(const FileStat& stat) const {
  return (options_.with_private || is_for_everybody(stat)) &&
         base::coarse_monotonic_ns() >= no_blocks_until_ns_.load(std::memory_order_relaxed);
}

void ClusterOffers::forget() {
  for (Pushed& place : pushed_) place.state.store(Pushed::free, std::memory_order_relaxed);
  for (PushedBlock& place : pushed_blocks_)
    place.state.store(Pushed::free, std::memory_order_relaxed);
  pin_.forget();
  blocks_.forget();
  leased_block_.forget();
  path_rights_.forget();
}

ClusterOffers::Ready ClusterOffers::may_be_reached(std::string_view path, bool is_physical,
                                                   std::uint64_t now_ns) {
  if (options_.with_private) return Ready::yes;
  switch (path_rights_.access_to(is_physical ? path.substr(0, path.rfind('/')) : path, now_ns)) {
    case ClusterPathRights::Access::all: return Ready::yes;
    case ClusterPathRights::Access::unknown: return Ready::later;
    default: return Ready::never;
  }
}

void ClusterOffers::fill(ClusterOffer& offer, const ClusterPaths::Place& place,
                         const ClusterContent& content, const std::byte* data,
                         const ClusterTags& tags) {
  static constexpr std::byte k_zeros[k_record_alignment]{};
  write_cluster_head(content, tags, head_);
  offer.key = cluster_key(options_.space, place, content.kind);
  offer.parts[0] = {head_.bytes, head_.size};
  offer.parts[1] = {data, content.data.size};
  offer.parts[2] = {k_zeros, head_.padding};
  offer.lease_cas = 0;
}

ClusterOffers::Ready ClusterOffers::prepare(ClusterOffer& offer, Pin& pin, const Record& record,
                                            std::uint64_t cas, std::uint64_t now_ns) {
  const auto place = paths_.place_of(record.path());
  if (!place || !may_be_shared(record, options_.with_private) ||
      record.data_size > options_.most_bytes)
    return Ready::never;
  if (const Ready ready = may_be_reached(record.path(), record.is_physical(), now_ns);
      ready != Ready::yes)
    return ready;
  pin_ = std::move(pin);
  // Other nodes of the job do not revalidate a record with the job's tag. So the tag proves that
  // the record is no older than the job: an earlier job may have left the record in memory.
  const Region& region = ram_.region();
  const std::uint64_t since_ns =
      std::max(region.job_row(region.own_job()).started_ns,
               region.header().doubted_ns.load(std::memory_order_relaxed));
  ClusterTags tags = options_.tags;
  if (record.verified_ns.load(std::memory_order_relaxed) < since_ns) tags.job = 0;
  fill(offer, *place, content_for_cluster(record, place->below), record.data(), tags);
  offer.lease_cas = cas;
  return Ready::yes;
}

ClusterOffers::Ready ClusterOffers::prepare_block(ClusterOffer& offer,
                                                  const ClusterBlocks::Found& found,
                                                  std::uint64_t now_ns) {
  const auto place = paths_.place_of(found.name);
  if (!place || (!options_.with_private && !is_for_everybody(found.stat))) return Ready::never;
  // Whether the path contains links is not known.
  if (const Ready ready = may_be_reached(found.path, /*is_physical=*/false, now_ns);
      ready != Ready::yes)
    return ready;
  fill(offer, *place,
       {.kind = RecordKind::block,
        .below_prefix = place->below,
        .stat = found.stat,
        .is_physical = false,
        .fetched_ns = found.fetched_ns,
        .data = {.size = found.bytes.size(),
                 .hash = base::hash_bytes(found.bytes.data(), found.bytes.size())}},
       found.bytes.data(), options_.tags);
  return Ready::yes;
}

bool ClusterOffers::next_block(ClusterOffer& offer, std::uint64_t now_ns) {
  constexpr int k_most_put_off = 64;
  for (int put_off = 0; put_off < k_most_put_off && blocks_.next();) {
    const Ready ready = prepare_block(offer, blocks_.found(), now_ns);
    if (ready == Ready::yes) return true;
    blocks_.end(/*is_put_off=*/ready == Ready::later);
    put_off += ready == Ready::later ? 1 : 0;
  }
  return false;
}

bool ClusterOffers::next_pushed_block(ClusterOffer& offer, std::uint64_t now_ns) {
  for (std::size_t i = 0; i < k_most_pushed_blocks; ++i) {
    PushedBlock& place = pushed_blocks_[next_pushed_block_++ % k_most_pushed_blocks];
    if (place.state.load(std::memory_order_acquire) != Pushed::full) continue;
    const LeasedBlock block = place.block;
    const bool is_there = leased_block_.find(block.file, block.at);
    const Ready ready =
        is_there ? prepare_block(offer, leased_block_.found(), now_ns) : Ready::never;
    offer.lease_cas = block.cas;
    if (ready == Ready::later && now_ns < place.until_ns) {
      leased_block_.leave();
      continue;
    }
    place.state.store(Pushed::free, std::memory_order_release);
    if (ready == Ready::yes) return true;
    // If not all users may search the directories, the other blocks of the file cannot be shared
    // either.
    if (is_there && ready == Ready::never)
      no_blocks_until_ns_.store(base::coarse_monotonic_ns() + k_no_blocks_ns,
                                std::memory_order_relaxed);
    leased_block_.leave();
    client_.remove(block.key, block.cas);
  }
  return false;
}

bool ClusterOffers::next_pushed(ClusterOffer& offer, std::uint64_t now_ns) {
  for (std::size_t i = 0; i < k_most_pushed; ++i) {
    Pushed& place = pushed_[next_pushed_++ % k_most_pushed];
    if (place.state.load(std::memory_order_acquire) != Pushed::full) continue;
    Pin pin(place.pin);
    const std::uint64_t cas = place.cas;
    const Record& record = *pin;
    const Ready ready = prepare(offer, pin, record, cas, now_ns);
    // After the end of the lease, no node waits for the record any longer. The leader's walk will
    // find it.
    if (ready == Ready::later && now_ns < place.until_ns) {
      place.pin = std::move(pin).keep();
      continue;
    }
    place.state.store(Pushed::free, std::memory_order_release);
    if (ready == Ready::yes) return true;
    // Ends the lease, so that other nodes do not wait for this record.
    if (const auto of = paths_.place_of(record.path()); of)
      client_.remove(ClusterKey(options_.space, of->origin, of->below), cas);
  }
  return false;
}

bool ClusterOffers::is_wanted(const Record& record) const {
  const auto place = paths_.place_of(record.path());
  return !place || client_.takes_offer(cluster_key(options_.space, *place, record.kind));
}

// A walk over all records that were put off takes time. So while the server stays unreachable,
// these walks become rarer.
void ClusterOffers::note_put_off(Note& note, std::uint64_t now_ns) {
  if (note.retry_ns != 0) return;
  note.retry_ns = now_ns + (k_first_retry_ns << std::min(note.retries, k_most_doublings));
  ++note.retries;
}

void ClusterOffers::put_off(const Place& place, std::uint64_t now_ns) {
  if (place.segment >= notes_.size() || notes_[place.segment].generation != place.generation)
    return;
  Note& note = notes_[place.segment];
  const auto found = std::ranges::lower_bound(note.offered, place.offset);
  if (found != note.offered.end() && *found == place.offset) note.offered.erase(found);
  note_put_off(note, now_ns);
}

// Collects the records of the segment that must be offered. Returns whether there are any.
bool ClusterOffers::look_at(std::uint32_t segment, std::uint64_t now_ns) {
  const SegmentRow& row = ram_.region().segment_row(segment);
  Note& note = notes_[segment];
  const std::uint32_t records = row.records.load(std::memory_order_acquire);
  if (records == 0 || now_ns < note.next_look_ns) return false;
  const SegmentWord word = word_of(row);
  const bool is_due = note.retry_ns != 0 && now_ns >= note.retry_ns;
  const bool has_news = word.generation != note.generation || records != note.seen;
  if (word.state == SegmentState::chunks || (!has_news && !is_due)) return false;
  Pin pin;
  std::uint32_t generation = 0;
  if (!ram_.hold(segment, generation, pin)) return false;
  if (note.generation != generation) note = Note(generation);
  bool are_all_confirmed = true, are_all_wanted = true;
  offsets_.clear();
  ram_.visit_segment(segment, [&](std::uint64_t offset, const Record& record) {
    if (record.stale.load(std::memory_order_acquire) == Record::k_unconfirmed)
      are_all_confirmed = false;
    // Skips records that this process's view has not seen, because their path may lie on another
    // mount there.
    if (!record.is_seen_by(ram_.region().own_view()) ||
        !may_be_shared(record, options_.with_private))
      return;
    if (std::ranges::binary_search(note.offered, offset)) return;
    if (is_wanted(record)) return offsets_.push_back(offset);
    are_all_wanted = false;
  });
  if (is_due) note.retry_ns = 0;
  if (!are_all_wanted) note_put_off(note, now_ns);
  if (are_all_confirmed) note.seen = records;
  note.next_look_ns = are_all_confirmed ? 0 : now_ns + k_look_again_ns;
  const std::size_t before = note.offered.size();
  note.offered.insert(note.offered.end(), offsets_.begin(), offsets_.end());
  std::ranges::inplace_merge(note.offered,
                             note.offered.begin() + static_cast<std::ptrdiff_t>(before));
  std::ranges::reverse(offsets_);
  segment_ = segment;
  generation_ = generation;
  return !offsets_.empty();
}

bool ClusterOffers::next_of_region(ClusterOffer& offer, std::uint64_t now_ns) {
  for (std::uint32_t looked = 0; looked <= notes_.size();) {
    while (!offsets_.empty()) {
      const std::uint64_t offset = offsets_.back();
      offsets_.pop_back();
      Pin pin;
      std::uint32_t generation = 0;
      // If the generation differs, the segment contains other records now.
      if (!ram_.hold(segment_, generation, pin) || generation != generation_) {
        offsets_.clear();
        break;
      }
      const auto& record =
          *reinterpret_cast<const Record*>(ram_.region().segment(segment_) + offset);
      if (!ram_.is_within_region(record)) continue;
      const Place place{
          .is_of_region = true, .segment = segment_, .generation = generation_, .offset = offset};
      if (!is_wanted(record)) {
        put_off(place, now_ns);
        continue;
      }
      const Ready ready = prepare(offer, pin, record, 0, now_ns);
      if (ready == Ready::later) {
        // Waits for the check of the directories, whose end wakes this thread. But if the origin
        // hangs, puts the record off, so that other records need not wait.
        if (!path_rights_.is_stuck(now_ns)) {
          offsets_.push_back(offset);
          return false;
        }
        put_off(place, now_ns);
      }
      if (ready != Ready::yes) continue;
      place_ = place;
      return true;
    }
    const auto next = static_cast<std::uint32_t>((segment_ + 1) % notes_.size());
    segment_ = next;
    ++looked;
    look_at(next, now_ns);
    // Stops after a while, because answers of the servers must wait during this walk. The next call
    // continues here.
    if (base::monotonic_ns() - now_ns > k_longest_walk_ns) return false;
  }
  return false;
}

void ClusterOffers::try_to_lead(std::uint64_t now_ns) {
  if (lock_ || now_ns < next_try_ns_) return;
  next_try_ns_ = now_ns + k_between_tries_ns;
  lock_.emplace(&ram_.region().header().cluster_writer, 0);
  if (!*lock_) return lock_.reset();
  notes_.assign(ram_.region().layout().segment_count, {});
  blocks_.begin();
  segment_ = 0;
  offsets_.clear();
}

bool ClusterOffers::next(ClusterOffer& offer, std::uint64_t now_ns, bool only_leased) {
  place_.is_of_region = false;
  if (next_pushed(offer, now_ns) || next_pushed_block(offer, now_ns)) return true;
  if (only_leased) return false;
  try_to_lead(now_ns);
  return lock_.has_value() && (next_of_region(offer, now_ns) || next_block(offer, now_ns));
}

void ClusterOffers::end_offer(ClusterOffer& offer, OfferEnd end) {
  pin_.release();
  blocks_.end(end == OfferEnd::put_off);
  leased_block_.end(end == OfferEnd::put_off);
  leased_block_.leave();
  if (std::exchange(place_.is_of_region, false)) {
    if (end == OfferEnd::put_off) put_off(place_, base::monotonic_ns());
    if (end == OfferEnd::accepted) notes_[place_.segment].retries = 0;
  }
  if (end != OfferEnd::accepted && offer.lease_cas != 0) client_.remove(offer.key, offer.lease_cas);
}

void ClusterOffers::note_figures(const ClusterFigures& figures) {
  TierRow& row = ram_.region().header().tiers[options_.tier];
  row.capacity.store(figures.capacity, std::memory_order_relaxed);
  row.used.store(figures.used, std::memory_order_relaxed);
  row.entries.store(figures.entries, std::memory_order_relaxed);
}

void ClusterOffers::leave() {
  path_rights_.end();
  pin_.release();
  blocks_.leave();
  leased_block_.leave();
  for (PushedBlock& place : pushed_blocks_) {
    std::uint32_t full = Pushed::full;
    place.state.compare_exchange_strong(full, Pushed::free, std::memory_order_acquire);
  }
  for (Pushed& place : pushed_) {
    std::uint32_t full = Pushed::full;
    if (place.state.compare_exchange_strong(full, Pushed::busy, std::memory_order_acquire)) {
      Pin(place.pin).release();
      place.state.store(Pushed::free, std::memory_order_release);
    }
  }
  lock_.reset();
}

}  // namespace cube::cache
