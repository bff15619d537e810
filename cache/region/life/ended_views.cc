#include "cache/region/life/ended_views.h"

#include "cache/region/life/life_lock.h"
#include "cache/region/life/process_slots.h"
#include "cache/region/ram/ram_tier.h"
#include "cache/region/segments.h"

namespace cube::cache {
namespace {

// Whether the segment has a record that can be found. `is_undecided`: another process is deciding
// whether to reclaim the segment.
bool has_records(const Region& region, std::uint32_t segment, bool& is_undecided) {
  constexpr int k_patience = 10'000;
  const std::atomic<std::uint64_t>& word = region.segment_row(segment).word;
  for (int i = 0; i < k_patience; ++i) {
    const SegmentState state = SegmentWord::of_word(word.load(std::memory_order_seq_cst)).state;
    if (state != SegmentState::evicting)
      return state == SegmentState::open || state == SegmentState::sealed;
    base::sys::raw(SYS_sched_yield);
  }
  is_undecided = true;
  return false;
}

}  // namespace

std::uint32_t living_views(const Region& region, LeftViews left) {
  const LifeProbe probe(region.reopen(O_RDONLY));
  std::uint32_t living = 0;
  for (std::uint32_t i = 0; i < slots_reached(region); ++i) {
    const ProcessSlot& slot = region.process_slot(i);
    const std::uint32_t view = slot.view.load(std::memory_order_relaxed);
    if (left == LeftViews::have_ended && slot.has_left_view.load(std::memory_order_relaxed) != 0)
      continue;
    if (slot.used.load(std::memory_order_acquire) != 0 && (living & view) != view &&
        probe.is_held(i))
      living |= view;
  }
  return living;
}

bool forget_views(Region& region, std::uint32_t bits) {
  const RamTier tier(region);
  const std::uint64_t segment_bytes = region.layout().segment_bytes;
  bool is_undecided = false;
  for (std::uint32_t segment = 0; segment < region.layout().segment_count; ++segment) {
    // The pin keeps the segment from being reclaimed. hold() fails if the segment was reclaimed
    // before the pin was set. The loop then checks again whether the segment has records.
    Pin claim;
    std::uint32_t generation = 0;
    while (has_records(region, segment, is_undecided) && !tier.hold(segment, generation, claim)) {
    }
    if (is_undecided) return false;
    if (region.segment_row(segment).records.load(std::memory_order_acquire) == 0) continue;
    const auto window = region.window(segment * segment_bytes, segment_bytes);
    if (!window) return false;
    tier.visit_segment(segment, [&](std::uint64_t offset, const Record& /*record*/) {
      reinterpret_cast<Record*>(window->data() + offset)
          ->views.fetch_and(~bits, std::memory_order_relaxed);
    });
  }
  return true;
}

}  // namespace cube::cache
