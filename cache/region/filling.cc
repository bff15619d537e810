#include "cache/region/filling.h"

#include "cache/region/region.h"
#include "cache/region/segments.h"

namespace cube::cache {

Filling filling_in(const Region& region, const std::atomic<std::uint64_t>& word) {
  Filling filling = Filling::of_word(word.load(std::memory_order_seq_cst));
  // Checks the bound, because the region may be corrupt.
  if (filling.segment >= region.layout().segment_count) filling.is_any = false;
  return filling;
}

bool is_open_to_all(const Region& region, const Filling& filling) {
  // seq_cst, as in RamTier::pin: a process that reclaims the segment first changes the word, then
  // checks the pins.
  const SegmentWord word = word_of(region.segment_row(filling.segment), std::memory_order_seq_cst);
  return word.state == SegmentState::open && word.owner == k_no_owner &&
         word.generation == filling.generation;
}

void open_to_all(Region& region, std::atomic<std::uint64_t>& word, std::uint32_t leased,
                 const Filling& full) {
  SegmentRow& row = region.segment_row(leased);
  const SegmentWord own = word_of(row);
  const SegmentWord shared{SegmentState::open, k_no_owner, own.generation};
  swap_word(row, own, shared);
  std::uint64_t before = full.as_word();
  const bool is_ours = word.compare_exchange_strong(
      before, Filling{leased, own.generation, true}.as_word(), std::memory_order_seq_cst);
  if (!is_ours) swap_word(row, shared, {SegmentState::sealed, k_no_owner, own.generation});
  // No process fills the full segment any longer, so this process seals it. If the full segment has
  // been reclaimed, its generation differs, and the swap fails.
  if (is_ours && full.is_any) {
    swap_word(region.segment_row(full.segment), {SegmentState::open, k_no_owner, full.generation},
              {SegmentState::sealed, k_no_owner, full.generation});
  }
}

}  // namespace cube::cache
