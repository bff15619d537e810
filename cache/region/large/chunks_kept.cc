// Kept chunks. If a file is served in parts, kept chunks hold the parts that programs have read,
// for the next open of the file (fill/kept_parts.h). Most of their space is empty, so kept chunks
// use only places that nothing else needs.
//
// Kept chunks may have as many places as chunks that pass. If all these places are taken, a new
// kept chunk replaces another kept chunk, which the hash of the new chunk selects. If the oldest
// chunk were replaced instead, a program that reads too many files in rotation would never get a
// hit. If no place is free, a chunk of another kind replaces a kept chunk. If no segment is free,
// segments that contain only kept chunks are freed for records.
#include "cache/base/process/block_signals.h"
#include "cache/region/large/chunks.h"
#include "cache/region/segments.h"

namespace cube::cache {

Chunks::Claim Chunks::find_kept(const FileKey& key, std::uint32_t number) const {
  return find(key, number | k_kept);
}

Chunks::Claim Chunks::make_kept(const FileKey& key, std::uint32_t number) {
  number |= k_kept;
  if (Claim own = find(key, number); own) return own;
  const std::uint32_t end = resident_segments(*region_) * region_->layout().chunks_of_segment();
  const std::uint32_t most = most_passing(end);
  std::uint32_t kept = 0;
  for (std::uint32_t place = 0; place < end && kept < most; ++place) {
    const ChunkRow& row = region_->chunk_row(place);
    kept += is_kept(row) && word_of(row).state == SegmentState::sealed ? 1 : 0;
  }
  std::uint32_t place = kept < most ? any_place(key, number) : k_none;
  if (place == k_none && kept != 0) place = kept_place(key, number);
  return place == k_none ? Claim() : seal(place, key, number, k_none);
}

// Takes the place of a kept chunk of another file.
std::uint32_t Chunks::kept_place(const FileKey& key, std::uint32_t number) {
  const std::uint32_t end = resident_segments(*region_) * region_->layout().chunks_of_segment();
  for (std::uint32_t step = 0; step < end; ++step) {
    const std::uint32_t place = static_cast<std::uint32_t>((key.version[0] + step) % end);
    const ChunkRow& row = region_->chunk_row(place);
    if (is_kept(row) && row.path.load(std::memory_order_relaxed) != key.path &&
        take_replaced(place, key, number, Replaced::kept))
      return place;
  }
  return k_none;
}

bool Chunks::free_kept_segments() {
  if (region_->header().has_chunks.load(std::memory_order_relaxed) == 0) return false;
  const base::BlockSignals block;
  bool is_any = false;
  for (std::uint32_t segment = region_->layout().segment_count; segment-- > 0;)
    is_any = free_kept_segment(segment) || is_any;
  return is_any;
}

bool Chunks::free_kept_segment(std::uint32_t segment) {
  SegmentRow& of = region_->segment_row(segment);
  const SegmentWord before = word_of(of);
  if (before.state != SegmentState::chunks) return false;
  const std::uint32_t each = region_->layout().chunks_of_segment(), first = segment * each;
  for (std::uint32_t place = first; place < first + each; ++place) {
    const ChunkRow& row = region_->chunk_row(place);
    const bool is_free = word_of(row).state == SegmentState::free;
    if (!(is_free || is_kept(row)) || row.is_mapped()) return false;
  }
  // Clears the mark before the memory is given back. Even if this process dies in between, no
  // segment without memory has the mark.
  of.has_memory.store(0, std::memory_order_release);
  // Opens all places of the segment, because other processes make no chunk in an open place.
  std::uint32_t taken = 0;
  for (; taken < each; ++taken) {
    ChunkRow& row = region_->chunk_row(first + taken);
    if (is_kept(row)) give_back_memory(first + taken, /*whatever=*/true);
    const SegmentWord free = word_of(row);
    if (free.state != SegmentState::free ||
        !swap_word(row, free, {SegmentState::open, region_->own_slot(), free.generation + 1}))
      break;
    // If a process died and left this place open, the place still has marks of present pages.
    write(first + taken, {}, 0, /*passes=*/false);
  }
  // If this process dies before free_run(), the segment stays open and empty until the reaper gives
  // it back.
  const bool is_ours =
      taken == each &&
      swap_word(of, before, {SegmentState::open, region_->own_slot(), before.generation + 1});
  while (taken-- > 0) {
    ChunkRow& row = region_->chunk_row(first + taken);
    const SegmentWord own = word_of(row);
    swap_word(row, own, {SegmentState::free, k_no_owner, own.generation});
  }
  if (is_ours) free_run(*region_, segment);
  return is_ours;
}

}  // namespace cube::cache
