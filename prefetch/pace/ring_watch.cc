#include "prefetch/pace/ring_watch.h"

#include <algorithm>
#include <utility>

namespace cube::prefetch {
namespace {

constexpr double k_weight = 1.0 / 64;         // of the latest value in the average displacement
constexpr double k_next_to_all = 0.97;        // of a segment's files
constexpr std::uint64_t k_least_spread = 64;  // how far apart a few loader workers read
constexpr std::size_t k_entries_of_a_look = 1 << 16;

}  // namespace

void add_settled(std::vector<Settled>& settled, std::uint32_t reader, std::uint32_t files) {
  for (Settled& row : settled) {
    if (row.reader != reader) continue;
    row.files += files;
    return;
  }
  settled.push_back({reader, files});
}

void RingWatch::add(const PlaceInRing& place, std::uint32_t reader, std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  Segment& segment = segments_[place.segment];
  if (segment.generation != place.generation) {
    // The segment was reused between two looks, so all of its records had been opened.
    for (const UnreadRecord& entry : segment.unread) note_opened(entry, settled_);
    segment.generation = place.generation;
    segment.files = 0;
    segment.unread.clear();
  }
  segment.unread.push_back({sequence, static_cast<std::uint32_t>(place.offset), reader});
  ++segment.files;
  newest_ = std::max(newest_, sequence);
}

void RingWatch::note_opened(const UnreadRecord& entry, std::vector<Settled>& settled) {
  add_settled(settled, entry.reader, 1);
  Reader& reader = readers_[entry.reader];
  const std::uint64_t behind =
      reader.furthest > entry.sequence ? reader.furthest - entry.sequence : 0;
  reader.displacement += (static_cast<double>(behind) - reader.displacement) * k_weight;
  reader.furthest = std::max(reader.furthest, entry.sequence);
}

// Returns false if the segment is done.
bool RingWatch::look_at(std::uint32_t number, Segment& segment) {
  const auto is_opened = [&](const UnreadRecord& entry) {
    if (ring_.is_unread(number, segment.generation, entry.offset)) return false;
    note_opened(entry, settled_);
    return true;
  };
  if (ring_.unread(number) != segment.unread.size()) std::erase_if(segment.unread, is_opened);
  if (!segment.unread.empty() || ring_.is_being_filled(number)) return true;
  // A published record may not have been added yet.
  return ring_.unread(number) != 0 && !ring_.settle_count(number);
}

std::vector<Settled> RingWatch::look() {
  const std::lock_guard lock(mutex_);
  // A large ring holds millions of small files, so each look continues at the end of the last one.
  std::size_t entries = 0;
  auto at = segments_.lower_bound(next_);
  for (std::size_t left = segments_.size(); left != 0 && entries < k_entries_of_a_look; --left) {
    if (at == segments_.end()) at = segments_.begin();
    entries += at->second.unread.size();
    at = look_at(at->first, at->second) ? std::next(at) : segments_.erase(at);
  }
  next_ = at != segments_.end() ? at->first : 0;
  return std::exchange(settled_, {});
}

// How far behind its furthest opened file a reader may open files and still follow the order.
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
  if (segment.unread.empty()) return false;
  const auto is_unwanted = [&](const UnreadRecord& entry) {
    return entry.sequence < order.passed(entry.reader);
  };
  if (std::all_of(segment.unread.begin(), segment.unread.end(), is_unwanted)) return true;
  if (!is_stuck) return false;
  const auto read = static_cast<double>(segment.files - segment.unread.size());
  if (read >= k_next_to_all * segment.files) return true;
  return std::all_of(segment.unread.begin(), segment.unread.end(), [&](const UnreadRecord& entry) {
    const Reader& reader = readers_[entry.reader];
    return entry.sequence < reader.furthest && reader.displacement <= displacement;
  });
}

std::uint32_t RingWatch::give_up(PathSource& order, bool is_stuck, std::vector<Settled>& settled) {
  const std::lock_guard lock(mutex_);
  const double displacement = is_stuck ? most_displacement() : 0;
  for (auto& [number, segment] : segments_) {
    if (ring_.is_being_filled(number) || !may_give_up(segment, order, is_stuck, displacement))
      continue;
    return drop(number, segment, settled);
  }
  return 0;
}

std::uint32_t RingWatch::drop(std::uint32_t number, Segment& segment,
                              std::vector<Settled>& settled) {
  for (const UnreadRecord& entry : segment.unread) add_settled(settled, entry.reader, 1);
  segment.unread.clear();
  return ring_.give_up(number);
}

std::uint32_t RingWatch::give_up_furthest(std::vector<Settled>& settled) {
  const std::lock_guard lock(mutex_);
  std::uint64_t furthest = 0;
  auto last = segments_.end();
  for (auto at = segments_.begin(); at != segments_.end(); ++at) {
    const Segment& segment = at->second;
    if (segment.unread.empty() || ring_.is_being_filled(at->first)) continue;
    std::uint64_t ahead = UINT64_MAX;  // the smallest distance of an unread file to its reader
    for (const UnreadRecord& entry : segment.unread) {
      const std::uint64_t read = readers_[entry.reader].furthest;
      ahead = std::min(ahead, entry.sequence - std::min(entry.sequence, read));
    }
    if (last != segments_.end() && ahead <= furthest) continue;
    furthest = ahead;
    last = at;
  }
  return last != segments_.end() ? drop(last->first, last->second, settled) : 0;
}

std::uint32_t RingWatch::give_up_unknown() {
  const std::lock_guard lock(mutex_);
  for (std::uint32_t segment = ring_.lowest_segment(); segment < ring_.end_segment(); ++segment) {
    if (!ring_.owns(segment) || segments_.contains(segment) || ring_.is_being_filled(segment) ||
        ring_.unread(segment) == 0)
      continue;
    if (ring_.settle_count(segment)) continue;
    if (const std::uint32_t dropped = ring_.give_up(segment); dropped != 0) return dropped;
  }
  return 0;
}

}  // namespace cube::prefetch
