#include "prefetch/pace/ring_watch.h"

#include <algorithm>
#include <utility>

#include "cache/base/clock.h"

namespace cube::prefetch {
namespace {

constexpr double k_weight = 1.0 / 64;         // the weight of the latest value in the average
                                              // displacement
constexpr double k_next_to_all = 0.97;        // a share of a segment's files
constexpr std::uint64_t k_least_spread = 64;  // how far apart a few loader workers read
constexpr std::size_t k_entries_of_a_look = 1 << 16;
constexpr std::uint64_t k_window = 128, k_most_overtaken = 2;  // files
constexpr std::uint64_t k_stuck_after_ns = 200 * base::k_ns_per_ms,
                        k_give_up_unknown_after_ns = 2000 * base::k_ns_per_ms;

}  // namespace

void RingWatch::add(const cache::RamTier::PlaceInRegion& place, std::uint32_t reader,
                    std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  Segment& segment = segments_[place.segment];
  if (segment.generation != place.generation) {
    // The segment was reclaimed after the last look, so all its old records count as opened.
    for (const UnreadRecord& entry : segment.unread) note_opened(entry);
    segment = {.generation = place.generation};
  }
  segment.unread.push_back({sequence, static_cast<std::uint32_t>(place.offset), reader});
  ++segment.files;
  newest_ = std::max(newest_, sequence);
}

void RingWatch::note_opened(const UnreadRecord& entry) {
  has_read_ = true;
  Reader& reader = readers_[entry.reader];
  ++reader.settled;
  const std::uint64_t behind =
      reader.furthest > entry.sequence ? reader.furthest - entry.sequence : 0;
  reader.displacement += (static_cast<double>(behind) - reader.displacement) * k_weight;
  reader.furthest = std::max(reader.furthest, entry.sequence);
}

// Returns false if the segment is done.
bool RingWatch::look_at(std::uint32_t number, Segment& segment) {
  const auto is_opened = [&](const UnreadRecord& entry) {
    if (ring_.is_unread(number, segment.generation, entry.offset)) return false;
    note_opened(entry);
    return true;
  };
  if (ring_.unread(number) != segment.unread.size()) std::erase_if(segment.unread, is_opened);
  if (!segment.unread.empty() || ring_.is_being_filled(number)) return true;
  // A record can be published before it is added here.
  return ring_.unread(number) != 0 && !ring_.settle_count(number);
}

void RingWatch::look(const Seen& seen) {
  const std::lock_guard lock(mutex_);
  // A large ring holds millions of small files, so each look begins where the last look stopped.
  std::size_t entries = 0;
  auto at = segments_.lower_bound(next_);
  for (std::size_t left = segments_.size(); left != 0 && entries < k_entries_of_a_look; --left) {
    if (at == segments_.end()) at = segments_.begin();
    entries += at->second.unread.size();
    at = look_at(at->first, at->second) ? std::next(at) : segments_.erase(at);
  }
  next_ = at != segments_.end() ? at->first : 0;
  if (std::exchange(has_read_, false) || !seen.is_blocked || !stuck_since_.is_blocked)
    stuck_since_ = seen;
  stuck_ns_ = seen.demanded > stuck_since_.demanded ? seen.now_ns - stuck_since_.now_ns : 0;
}

bool RingWatch::is_too_small(const Seen& seen) {
  // The counts of a process disappear when it ends.
  if (seen.is_blocked && last_.is_blocked && seen.demanded > last_.demanded)
    while_blocked_ += seen.demanded - last_.demanded;
  last_ = seen;
  const std::uint64_t overtaken = seen.overtaken - first_.overtaken;
  const bool is_too_small = overtaken > k_most_overtaken && while_blocked_ > k_most_overtaken;
  if (is_too_small || seen.fetched - first_.fetched + overtaken >= k_window) {
    first_ = seen;
    while_blocked_ = 0;
  }
  return is_too_small;
}

std::vector<Settled> RingWatch::take_settled() {
  const std::lock_guard lock(mutex_);
  std::vector<Settled> settled;
  for (auto& [number, reader] : readers_) {
    if (reader.settled != 0) settled.push_back({number, std::exchange(reader.settled, 0)});
  }
  return settled;
}

// The largest displacement at which a reader still counts as following the order.
double RingWatch::most_displacement() const {
  std::uint64_t lowest = UINT64_MAX;
  for (const auto& [number, segment] : segments_) {
    for (const UnreadRecord& entry : segment.unread) lowest = std::min(lowest, entry.sequence);
  }
  const double span = lowest < newest_ ? static_cast<double>(newest_ - lowest) : 0;
  return std::max(static_cast<double>(k_least_spread), span / 8);
}

bool RingWatch::may_give_up(const Segment& segment, PathSource& order, bool is_stuck,
                            double displacement) {
  const auto all = [&](const auto& is_given_up) {
    return std::all_of(segment.unread.begin(), segment.unread.end(), is_given_up);
  };
  if (all([&](const UnreadRecord& entry) { return entry.sequence < order.passed(entry.reader); }))
    return true;
  if (!is_stuck) return false;
  const auto read = static_cast<double>(segment.files - segment.unread.size());
  return read >= k_next_to_all * segment.files || all([&](const UnreadRecord& entry) {
           const Reader& reader = readers_[entry.reader];
           return entry.sequence < reader.furthest && reader.displacement <= displacement;
         });
}

// How far the segment's unread file that is nearest to its reader is ahead of that reader.
std::uint64_t RingWatch::ahead_of_readers(const Segment& segment) {
  std::uint64_t ahead = UINT64_MAX;
  for (const UnreadRecord& entry : segment.unread) {
    const std::uint64_t read = readers_[entry.reader].furthest;
    ahead = std::min(ahead, entry.sequence - std::min(entry.sequence, read));
  }
  return ahead;
}

std::uint32_t RingWatch::give_up(PathSource& order, bool is_starved) {
  const std::lock_guard lock(mutex_);
  const bool is_stuck = stuck_ns_ >= k_stuck_after_ns;
  const double displacement = is_stuck ? most_displacement() : 0;
  auto last = segments_.end();
  std::uint64_t furthest = 0;
  for (auto at = segments_.begin(); at != segments_.end(); ++at) {
    const Segment& segment = at->second;
    if (segment.unread.empty() || ring_.is_being_filled(at->first)) continue;
    if (may_give_up(segment, order, is_stuck, displacement)) return drop(at->first);
    const std::uint64_t ahead = is_starved ? ahead_of_readers(segment) : 0;
    if (last != segments_.end() && ahead <= furthest) continue;
    furthest = ahead;
    last = at;
  }
  if (is_starved && last != segments_.end()) return drop(last->first);
  return stuck_ns_ >= k_give_up_unknown_after_ns ? give_up_unknown() : 0;
}

std::uint32_t RingWatch::drop(std::uint32_t number) {
  if (const auto at = segments_.find(number); at != segments_.end()) {
    for (const UnreadRecord& entry : at->second.unread) ++readers_[entry.reader].settled;
    at->second.unread.clear();
  }
  const std::uint32_t dropped = ring_.give_up(number);
  if (dropped != 0) stuck_since_ = {};
  return dropped;
}

// Gives up one segment that a previous leader filled.
std::uint32_t RingWatch::give_up_unknown() {
  for (std::uint32_t segment = ring_.lowest_segment(); segment < ring_.end_segment(); ++segment) {
    const bool is_unknown = ring_.owns(segment) && !segments_.contains(segment) &&
                            !ring_.is_being_filled(segment) && ring_.unread(segment) != 0;
    if (!is_unknown || ring_.settle_count(segment)) continue;
    if (const std::uint32_t dropped = drop(segment); dropped != 0) return dropped;
  }
  return 0;
}

}  // namespace cube::prefetch
