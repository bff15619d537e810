#include "cache/region/index.h"

#include "cache/region/segments.h"

namespace cube::cache {

bool Index::is_living(std::uint64_t word) const {
  const RecordPlace place = place_of(word);
  if (place.segment >= region_->layout().segment_count) return false;
  const SegmentWord segment = SegmentWord::of_word(
      region_->segment_row(place.segment).word.load(std::memory_order_acquire));
  // A segment in the state `evicting` may be kept after all, and programs may have its records
  // open. So a change must still find these records.
  return (segment.is_readable() || segment.state == SegmentState::evicting) &&
         (segment.generation & k_generation_mask) == place.generation;
}

}  // namespace cube::cache
