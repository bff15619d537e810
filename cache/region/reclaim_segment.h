// Reclaims a segment that has records: moves the segment to the next generation, so that its
// records can no longer be found. Thread-safe, also across processes; if two processes try to
// reclaim a segment, only one gets it.
#pragma once

#include <algorithm>

#include "cache/region/index.h"
#include "cache/region/life/process_slots.h"
#include "cache/region/region.h"
#include "cache/region/segments.h"

namespace cube::cache {

// A slot of the index has 12 bits for a generation. Dead slots must be swept before these bits wrap
// around.
inline constexpr std::uint32_t k_generations_between_sweeps = Index::k_generation_mask / 4;

// Reclaims the segment if no process has a pin on it. The segment is first marked EVICTING, and all
// pins are checked. Then the segment becomes OPEN and empty, and belongs to this process. `before`
// must be a closed state. `may` is called while no new pin can succeed. If `may` returns false, or
// if a process has a pin, the word becomes `otherwise`, and the result is false.
template <typename May>
bool reclaim_segment(Region& region, std::uint32_t segment, const SegmentWord& before,
                     const SegmentWord& otherwise, May&& may) {
  // Checks the pins before marking, because marking a pinned segment would briefly hide it from all
  // processes.
  if (is_segment_pinned(region, segment)) return false;
  SegmentRow& row = region.segment_row(segment);
  const SegmentWord evicting{SegmentState::evicting, region.own_slot(), before.generation};
  if (!swap_word(row, before, evicting)) return false;
  // seq_cst on both sides: a process that pins first increments its counter, then loads the word
  // (RamTier::pin). This function first stores the word, then loads the counters.
  if (is_segment_pinned(region, segment) || !may()) {
    swap_word(row, evicting, otherwise);
    return false;
  }
  const std::uint64_t words = region.layout().segment_bytes / k_unread_grain / 64;
  std::fill_n(region.unread_bits() + words * segment, words, 0);
  row.unread.store(0, std::memory_order_relaxed);
  row.fill.store(0, std::memory_order_relaxed);
  row.fresh.store(0, std::memory_order_relaxed);
  row.flushed.store(0, std::memory_order_relaxed);
  SegmentWord after{SegmentState::open, region.own_slot(), before.generation + 1};
  if (after.generation == 0) after.generation = 1;
  swap_word(row, evicting, after);
  // Clears the counts only after the swap. If this process dies before the swap, the segment is
  // sealed again with its records, and forget_views() would skip it if its count were 0.
  RegionHeader& header = region.header();
  header.records.fetch_sub(row.records.exchange(0, std::memory_order_relaxed),
                           std::memory_order_relaxed);
  header.used_bytes.fetch_sub(row.used_bytes.exchange(0, std::memory_order_relaxed),
                              std::memory_order_relaxed);
  if (after.generation % k_generations_between_sweeps == 0) Index(region).sweep_dead();
  return true;
}

}  // namespace cube::cache
