// Ring: decides which segment is evicted next. The order is:
//   1. A free segment in the ring's own place, or else the oldest segment that can be reclaimed: it
//   is not pinned, its prefetched records have all been read, and its records are on the disk.
//   2. If the ring is short, a resident segment that no program has mapped, from the end.
#include <algorithm>
#include <cerrno>

#include "cache/region/life/process_slots.h"
#include "cache/region/reclaim_segment.h"
#include "cache/region/ring.h"
#include "cache/region/segments.h"

namespace cube::cache {
namespace {

// With this many segments, the ring can fill, read and reclaim segments at the same time. No
// further segments join, because each of them takes room from resident records.
constexpr std::uint32_t k_enough = 8;
// Limits the number of segments that are checked, because a check of all pins on a segment costs a
// cache miss for each process.
constexpr std::uint32_t k_most_looks = 32;

}  // namespace

// Searches from the end of the region, where the ring has its own place.
template <typename Take>
std::optional<std::uint32_t> Ring::join(Take&& take) const {
  if (!is_short()) return {};
  std::uint32_t looks = 0;
  for (std::uint32_t segment = end_segment(); segment-- > 0 && looks < k_most_looks;) {
    if (!may_join(segment)) continue;
    if (take(segment)) return segment;
    ++looks;
  }
  return {};
}

base::Result<std::uint32_t> Ring::lease() {
  const std::uint32_t lowest = lowest_segment(), count = end_segment() - lowest;
  int error = ENOSPC;
  if (next_ < lowest) next_ = lowest;
  for (std::uint32_t step = 0; step < count; ++step) {
    const std::uint32_t segment = lowest + (next_ - lowest + step) % count;
    bool taken = false;
    if (word_of(region_->segment_row(segment)).state == SegmentState::free) {
      // If one free segment got no memory, skips all other free segments. The loop then reclaims a
      // segment that has memory.
      if (segment < first_segment() || error != ENOSPC) continue;
      const auto leased = lease_free(*region_, segment);
      if (!leased && leased.error().value != EBUSY) error = leased.error().value;
      taken = static_cast<bool>(leased);
      if (taken) region_->segment_row(segment).is_ring.store(1, std::memory_order_release);
    } else {
      taken = is_used_up(segment) && take_used_up(segment);
    }
    if (!taken) continue;
    next_ = segment + 1;
    return segment;
  }
  const auto joined = join([&](std::uint32_t segment) { return take_used_up(segment); });
  if (!joined) return base::fail(error);
  next_ = *joined + 1;
  return *joined;
}

bool Ring::is_used_up(std::uint32_t segment) const {
  if (!is_spent(segment)) return false;
  // Spares the segment that programs fill, if the ring has other segments.
  const Filling now = filling();
  return !now.is_any || now.segment != segment || !is_open(now) ||
         end_segment() - first_segment() == 1;
}

bool Ring::is_spent(std::uint32_t segment) const {
  const SegmentRow& row = region_->segment_row(segment);
  if (!word_of(row).is_closed() || row.unread.load(std::memory_order_seq_cst) != 0) return false;
  return row.is_ring.load(std::memory_order_acquire) != 0 && !is_awaited(row);
}

bool Ring::is_awaited(const SegmentRow& row) const {
  // Acquire: pairs with the release in TierWriter, in the process that has written the records.
  return row.fresh.load(std::memory_order_seq_cst) != row.flushed.load(std::memory_order_acquire) &&
         has_disk_writer();
}

bool Ring::is_pinned(std::uint32_t segment) const { return is_segment_pinned(*region_, segment); }

bool Ring::take_used_up(std::uint32_t segment) {
  SegmentRow& row = region_->segment_row(segment);
  const SegmentWord before = word_of(row);
  if (!before.is_closed()) return false;
  const bool joins = row.is_ring.load(std::memory_order_relaxed) == 0;
  const auto may = [&] {
    // A caller of want_again() has a pin on the record, and this function runs only while nothing
    // pins the segment. So no process can call want_again() now.
    if (row.unread.load(std::memory_order_seq_cst) != 0 || is_awaited(row) ||
        row.is_mapped.load(std::memory_order_acquire) != 0)
      return false;
    if (joins) note_joined(segment);
    return true;
  };
  // If a resident segment cannot join after all, its previous state is restored, so that other
  // processes can use the rest of the segment.
  const SegmentWord closed{SegmentState::sealed, k_no_owner, before.generation};
  return reclaim_segment(*region_, segment, before, joins ? before : closed, may);
}

bool Ring::may_join(std::uint32_t segment) const {
  const SegmentRow& row = region_->segment_row(segment);
  if (!word_of(row).is_closed() || row.is_ring.load(std::memory_order_relaxed) != 0) return false;
  if (row.holds_metadata.load(std::memory_order_relaxed) != 0) return false;
  if (row.run_length.load(std::memory_order_relaxed) > 1 ||
      row.is_mapped.load(std::memory_order_relaxed) != 0)
    return false;
  return row.unread.load(std::memory_order_relaxed) == 0 && !is_awaited(row);
}

bool Ring::is_short() const { return own(enough()) < enough(); }

std::uint32_t Ring::enough() const {
  return std::max(std::min(end_segment() - first_segment(), k_enough),
                  widened_to_.load(std::memory_order_relaxed));
}

// Counts the ring's segments, but stops at `enough`.
std::uint32_t Ring::own(std::uint32_t enough) const {
  std::uint32_t own = 0;
  for (std::uint32_t segment = lowest_segment(); segment < end_segment() && own < enough; ++segment)
    own += owns(segment) ? 1 : 0;
  return own;
}

bool Ring::widen() {
  const std::uint32_t most = end_segment() / 4, now = own(most);
  if (!is_made() || now >= most || now < enough()) return false;
  widened_to_.store(now + 1, std::memory_order_relaxed);
  return true;
}

bool Ring::can_join() const {
  return join([&](std::uint32_t segment) { return !is_pinned(segment); }).has_value();
}

// Call it before the segment's word changes, so that the ring finds the segment even if this
// process is killed in between.
void Ring::note_joined(std::uint32_t segment) {
  const std::uint32_t first = first_segment(), reach = segment < first ? first - segment : 0;
  std::atomic<std::uint32_t>& known = region_->header().ring_reach;
  std::uint32_t before = known.load(std::memory_order_relaxed);
  while (before < reach && !known.compare_exchange_weak(before, reach, std::memory_order_acq_rel)) {
  }
  region_->segment_row(segment).is_ring.store(1, std::memory_order_release);
}

std::uint64_t Ring::room(bool* is_pinned) const {
  std::uint64_t segments = 0;
  for (std::uint32_t i = lowest_segment(); i < end_segment(); ++i) {
    if (word_of(region_->segment_row(i)).state == SegmentState::free) {
      segments += i >= first_segment() ? 1 : 0;
    } else if (is_used_up(i)) {
      if (!this->is_pinned(i)) {
        ++segments;
      } else if (is_pinned != nullptr) {
        *is_pinned = true;
      }
    }
  }
  // Counts at most one segment that could join, because segments join one at a time.
  if (segments == 0 && can_join()) segments = 1;
  return segments * region_->layout().segment_bytes;
}

}  // namespace cube::cache
