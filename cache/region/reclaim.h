// Takes a segment that has records for the next generation, in which none of them can be found.
// Thread safety: all of it, between processes: of two that try, one gets it.
#pragma once

#include <algorithm>

#include "cache/region/index.h"
#include "cache/region/life/process_slots.h"
#include "cache/region/region.h"
#include "cache/region/segments.h"

namespace cube::cache {

// A slot of the index keeps 12 bits of a generation: dead ones are swept before these come round.
inline constexpr std::uint32_t k_generations_between_sweeps = Index::k_generation_mask / 4;

// Nobody has a claim: EVICTING, a look at all claims, then OPEN, ours and empty. `before` is
// closed. `may` is asked while no claim can be made; if it says no, or somebody has a claim, the
// word is `otherwise`, and the answer false.
template <typename May>
bool reclaim(Region& region, std::uint32_t segment, const SegmentWord& before,
             const SegmentWord& otherwise, May&& may) {
  // Without a look that would hide it from everybody for a moment.
  if (is_segment_pinned(region, segment)) return false;
  SegmentRow& row = region.segment_row(segment);
  const SegmentWord evicting{SegmentState::evicting, region.own_slot(), before.generation};
  if (!swap_word(row, before, evicting)) return false;
  // seq_cst on both sides: who pins raises his counter first and looks at the word then
  // (RamTier::pin), we the other way round.
  if (is_segment_pinned(region, segment) || !may()) {
    swap_word(row, evicting, otherwise);
    return false;
  }
  RegionHeader& header = region.header();
  header.records.fetch_sub(row.records.exchange(0, std::memory_order_relaxed),
                           std::memory_order_relaxed);
  header.used_bytes.fetch_sub(row.used_bytes.exchange(0, std::memory_order_relaxed),
                              std::memory_order_relaxed);
  const std::uint64_t words = region.layout().segment_bytes / k_unread_grain / 64;
  std::fill_n(region.unread_bits() + words * segment, words, 0);
  row.unread.store(0, std::memory_order_relaxed);
  row.fill.store(0, std::memory_order_relaxed);
  row.fresh.store(0, std::memory_order_relaxed);
  row.flushed.store(0, std::memory_order_relaxed);
  SegmentWord after{SegmentState::open, region.own_slot(), before.generation + 1};
  if (after.generation == 0) after.generation = 1;
  swap_word(row, evicting, after);
  if (after.generation % k_generations_between_sweeps == 0) Index(region).sweep_dead();
  return true;
}

}  // namespace cube::cache
