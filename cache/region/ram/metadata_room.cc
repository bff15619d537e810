#include "cache/region/ram/metadata_room.h"

#include <cerrno>

#include "cache/region/large/chunks.h"
#include "cache/region/reclaim_segment.h"
#include "cache/region/segments.h"

namespace cube::cache {

bool MetadataRoom::owns(std::uint32_t segment) const {
  return region_->segment_row(segment).holds_metadata.load(std::memory_order_relaxed) != 0;
}

std::uint32_t MetadataRoom::count() const {
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < region_->layout().segment_count; ++i) {
    if (owns(i) && word_of(region_->segment_row(i)).state != SegmentState::free) ++count;
  }
  return count;
}

Filling MetadataRoom::filling() const {
  return filling_in(*region_, region_->header().metadata_filling);
}

bool MetadataRoom::is_open(const Filling& filling) const {
  return is_open_to_all(*region_, filling) && owns(filling.segment);
}

bool MetadataRoom::take(std::uint32_t segment) const {
  const SegmentWord before = word_of(region_->segment_row(segment));
  const SegmentWord closed{SegmentState::sealed, k_no_owner, before.generation};
  return before.is_closed() &&
         reclaim_segment(*region_, segment, before, closed, [] { return true; });
}

base::Result<std::uint32_t> MetadataRoom::lease(
    const Filling& full, std::uint32_t most,
    const std::function<bool(std::uint32_t segment)>& may_drop) const {
  const std::uint32_t own = count();
  if (own < most) {
    auto leased = lease_run(*region_, 1);
    if (!leased && Chunks(*region_).free_kept_segments()) leased = lease_run(*region_, 1);
    if (leased) {
      // Sets the mark while the segment is empty and belongs to this process. If the process dies
      // now, the segment is given back, and the next take_free clears the mark.
      region_->segment_row(*leased).holds_metadata.store(1, std::memory_order_release);
      return *leased;
    }
  }
  const std::uint32_t segments = region_->layout().segment_count;
  for (std::uint32_t i = 0; i < segments; ++i) {
    const bool is_other = owns(i) && !(full.is_any && i == full.segment);
    if (is_other && may_drop(i) && take(i)) return i;
  }
  if (full.is_any && owns(full.segment) && may_drop(full.segment) && take(full.segment))
    return full.segment;
  return base::fail(own == 0 ? ENOMEM : ENOSPC);
}

base::Result<void> MetadataRoom::next_filling(
    const Filling& full, std::uint32_t most,
    const std::function<bool(std::uint32_t segment)>& may_drop) {
  std::atomic<std::uint64_t>& now = region_->header().metadata_filling;
  if (now.load(std::memory_order_seq_cst) != full.as_word()) return {};
  const auto leased = lease(full, most, may_drop);
  if (!leased) {
    if (now.load(std::memory_order_seq_cst) != full.as_word()) return {};
    return base::fail(leased.error().value);
  }
  open_to_all(*region_, now, *leased, full);
  return {};
}

}  // namespace cube::cache
