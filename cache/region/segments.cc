#include "cache/region/segments.h"

#include <algorithm>
#include <cerrno>

#include "cache/base/clock.h"
#include "cache/region/region.h"

namespace cube::cache {
namespace {

// If the tiers' writer has not reported for this long, it has been killed or is waiting for a disk
// that hangs.
constexpr std::uint64_t k_writer_is_gone_ns = 2'000'000'000;

void set_free(Region& region, std::uint32_t segment) {
  SegmentRow& row = region.segment_row(segment);
  const SegmentWord before = word_of(row);
  swap_word(row, before, {SegmentState::free, k_no_owner, before.generation});
}

void give_back(Region& region, std::uint32_t segment) {
  set_free(region, segment);
  region.header().full_until.store(0, std::memory_order_relaxed);
}

base::Result<void> reserve(Region& region, std::uint32_t first, std::uint32_t count) {
  bool has_memory = true;
  for (std::uint32_t i = first; i < first + count; ++i) {
    // Pairs with the release below: if another process has set the mark, its reservation is
    // complete.
    has_memory =
        has_memory && region.segment_row(i).has_memory.load(std::memory_order_acquire) != 0;
  }
  if (has_memory) return {};
  const auto reserved = region.reserve_segments(first, count);
  if (!reserved) return reserved;
  for (std::uint32_t i = first; i < first + count; ++i)
    region.segment_row(i).has_memory.store(1, std::memory_order_release);
  return {};
}

// Leases a segment that another process has left open, in order to use the rest of it. Excludes
// segments of the ring and segments for metadata. Includes segments in the ring's place that were
// leased before the ring was made, because these do not belong to the ring.
base::Result<std::uint32_t> lease_left_over(Region& region, std::uint64_t bytes) {
  for (std::uint32_t i = 0, n = region.layout().segment_count; i < n; ++i) {
    SegmentRow& row = region.segment_row(i);
    const SegmentWord before = word_of(row);
    if (before.state != SegmentState::open || before.owner != k_no_owner) continue;
    // A segment gets the mark of the ring or of metadata only while a process leases the segment.
    // So if the segment gets a mark after these checks, its word has changed, and the swap below
    // fails.
    if (row.is_ring.load(std::memory_order_relaxed) != 0) continue;
    if (row.holds_metadata.load(std::memory_order_relaxed) != 0) continue;
    if (region.layout().segment_bytes - row.fill.load(std::memory_order_relaxed) < bytes) continue;
    if (swap_word(row, before, {SegmentState::open, region.own_slot(), before.generation}))
      return i;
  }
  return base::fail(ENOSPC);
}

}  // namespace

// Gives a FREE segment the state `state` and the next generation, and makes this process its owner.
// The caller must reserve the segment's memory.
bool take_free(Region& region, std::uint32_t segment, SegmentState state) {
  SegmentRow& row = region.segment_row(segment);
  const SegmentWord before = word_of(row);
  if (before.state != SegmentState::free) return false;
  SegmentWord after{state, region.own_slot(), before.generation + 1};
  if (after.generation == 0) after.generation = 1;
  if (!swap_word(row, before, after)) return false;
  row.fill.store(0, std::memory_order_release);
  row.run_length.store(1, std::memory_order_relaxed);
  row.is_ring.store(0, std::memory_order_relaxed);
  row.holds_metadata.store(0, std::memory_order_relaxed);
  return true;
}

std::uint32_t run_length_of(const Region& region, std::uint32_t first) {
  return std::min(region.segment_row(first).run_length.load(std::memory_order_acquire),
                  region.layout().segment_count - first);
}

std::uint32_t resident_segments(const Region& region) {
  const std::uint32_t total = region.layout().segment_count;
  return total - std::min(region.header().ring_segments.load(std::memory_order_relaxed), total);
}

base::Result<void> take_for_chunks(Region& region, std::uint32_t segment) {
  // If this process dies before the second swap, the segment is open and empty, so it is given
  // back.
  if (!take_free(region, segment, SegmentState::open)) return base::fail(EBUSY);
  SegmentRow& row = region.segment_row(segment);
  const SegmentWord own = word_of(row);
  swap_word(row, own, {SegmentState::chunks, k_no_owner, own.generation});
  return {};
}

base::Result<void> lease_free(Region& region, std::uint32_t segment) {
  if (!take_free(region, segment, SegmentState::open)) return base::fail(EBUSY);
  const auto reserved = reserve(region, segment, 1);
  if (!reserved) give_back(region, segment);
  return reserved;
}

base::Result<std::uint32_t> lease_run(Region& region, std::uint32_t count) {
  RegionHeader& header = region.header();
  const std::uint32_t total = resident_segments(region);
  const std::uint32_t hint = header.free_hint.load(std::memory_order_relaxed);
  for (std::uint32_t step = 0; step < total; ++step) {
    const std::uint32_t first = (hint + step) % total;
    if (first + count > total) continue;
    std::uint32_t taken = 0;
    while (taken < count &&
           take_free(region, first + taken, taken == 0 ? SegmentState::open : SegmentState::tail))
      ++taken;
    if (taken == count) {
      const auto reserved = reserve(region, first, count);
      if (reserved) {
        region.segment_row(first).run_length.store(count, std::memory_order_release);
        header.free_hint.store((first + count) % total, std::memory_order_relaxed);
        return first;
      }
      while (taken > 0) give_back(region, first + --taken);
      return base::fail(reserved.error().value);
    }
    while (taken > 0) give_back(region, first + --taken);
  }
  return base::fail(ENOSPC);
}

base::Result<std::uint32_t> lease_segment(Region& region, std::uint64_t bytes) {
  const auto left_over = lease_left_over(region, bytes);
  if (left_over) return left_over;
  return lease_run(region, 1);
}

base::Result<bool> prepare_segment(Region& region, std::uint32_t ahead) {
  const std::uint32_t total = resident_segments(region);
  const std::uint32_t hint = region.header().free_hint.load(std::memory_order_relaxed);
  for (std::uint32_t step = 0, ready = 0; step < total && ready < ahead; ++step) {
    const std::uint32_t segment = (hint + step) % total;
    const SegmentRow& row = region.segment_row(segment);
    if (word_of(row).state != SegmentState::free) continue;
    if (row.has_memory.load(std::memory_order_relaxed) != 0) {
      ++ready;
      continue;
    }
    if (!take_free(region, segment, SegmentState::open)) continue;
    const auto reserved = reserve(region, segment, 1);
    // While this process leased the segment, another process may have searched for a segment in
    // vain. give_back() lets that process search again. set_free() does not, because there is no
    // memory.
    if (!reserved) {
      set_free(region, segment);
      return base::fail(reserved.error().value);
    }
    give_back(region, segment);
    return true;
  }
  return false;
}

void tell_tier_writer(RegionHeader& header) {
  // seq_cst: either this load sees that the writer sleeps, or the writer sees the new count and
  // does not go to sleep.
  header.disk_news.fetch_add(1, std::memory_order_seq_cst);
  if (header.disk_sleeps.load(std::memory_order_seq_cst) != 0)
    base::sys::futex_wake_all(&header.disk_news);
}

bool is_tier_writer_alive(const RegionHeader& header) {
  const std::uint64_t seen = header.disk_alive_ns.load(std::memory_order_relaxed);
  return seen != 0 && base::coarse_monotonic_ns() < seen + k_writer_is_gone_ns;
}

void seal_segment(Region& region, std::uint32_t segment) {
  // Seals the head last. While the head is open, the whole run belongs to its writer, and is freed
  // if the writer dies.
  const std::uint32_t count = run_length_of(region, segment);
  for (std::uint32_t i = count; i-- > 0;) {
    SegmentRow& row = region.segment_row(segment + i);
    const SegmentWord before = word_of(row);
    swap_word(row, before,
              {i == 0 ? SegmentState::sealed : before.state, k_no_owner, before.generation});
  }
}

void free_run(Region& region, std::uint32_t first) {
  SegmentRow& head = region.segment_row(first);
  const std::uint32_t count = run_length_of(region, first), of_head = word_of(head).owner;
  // A sealed run has no owner, so this process becomes the owner of its tails.
  const std::uint32_t owner = of_head != k_no_owner ? of_head : region.own_slot();
  for (std::uint32_t i = 1; i < count; ++i) {
    SegmentRow& tail = region.segment_row(first + i);
    const SegmentWord before = word_of(tail);
    swap_word(tail, before, {before.state, owner, before.generation});
  }
  // Each tail now has an owner, and the reaper frees the tail if that process dies. If the head
  // still counted its tails, the reaper would also free a tail that was already given back and that
  // another process has leased since.
  head.run_length.store(1, std::memory_order_release);
  for (std::uint32_t i = count; i-- > 0;) give_back(region, first + i);
}

void release_lease(Region& region, std::uint32_t segment) {
  SegmentRow& row = region.segment_row(segment);
  const SegmentWord before = word_of(row);
  if (before.state != SegmentState::open || before.owner != region.own_slot()) return;
  swap_word(row, before, {SegmentState::open, k_no_owner, before.generation});
  region.header().full_until.store(0, std::memory_order_relaxed);
}

void release_leases_of(Region& region, std::uint32_t process_slot) {
  for (std::uint32_t i = 0; i < region.layout().segment_count; ++i) {
    SegmentRow& row = region.segment_row(i);
    const SegmentWord before = word_of(row);
    if (before.owner != process_slot || before.state == SegmentState::free) continue;
    if (before.state != SegmentState::open) {
      // The run of this tail was never complete, or its head has already been given back.
      if (before.state == SegmentState::tail) give_back(region, i);
      // Another process may have a pin on the segment, so its bytes must stay.
      if (before.state == SegmentState::evicting)
        swap_word(row, before, {SegmentState::sealed, k_no_owner, before.generation});
    } else if (row.run_length.load(std::memory_order_acquire) > 1) {
      // A run is sealed before its record is published. Because this run is still open, its record
      // is not published.
      free_run(region, i);
    } else if (row.fill.load(std::memory_order_acquire) == 0) {
      // Gives the empty segment back, because it may have no memory yet.
      give_back(region, i);
    } else {
      swap_word(row, before, {SegmentState::open, k_no_owner, before.generation});
      region.header().full_until.store(0, std::memory_order_relaxed);
    }
  }
}

}  // namespace cube::cache
