// The life of a segment: FREE -> OPEN (leased by one process, which alone writes to it) -> SEALED
// (immutable). If a process leaves a segment that is not full, the segment stays OPEN without an
// owner, so that another process can lease the rest. A ring segment (ring.h) is also reclaimed:
// SEALED -> EVICTING -> OPEN, in the next generation. In the ring, all processes may fill a segment
// that is OPEN without an owner. A record that is larger than a segment occupies a run: a first
// segment, and the TAIL segments after it. Invariants: one compare-and-swap changes the state, the
// owner and the generation. A generation is never 0. Thread-safe, also across processes.
#pragma once

#include <cstdint>

#include "cache/base/result.h"
#include "cache/region/layout.h"

namespace cube::cache {

class Region;

struct SegmentWord {
  SegmentState state = SegmentState::free;
  std::uint32_t owner = k_no_owner;
  std::uint32_t generation = 0;

  static SegmentWord of_word(std::uint64_t word) {
    // In a new region, all words are zero, which means that each segment is free and was never
    // used.
    return {static_cast<SegmentState>(word & 0xff),
            static_cast<std::uint32_t>((word >> 8) & 0xffffff),
            static_cast<std::uint32_t>(word >> 32)};
  }
  std::uint64_t as_word() const {
    return static_cast<std::uint64_t>(state) | (std::uint64_t{owner} << 8) |
           (std::uint64_t{generation} << 32);
  }
  // Whether the segment is sealed, or is open without an owner. An open segment has no owner if its
  // owner has exited or has given the segment back, or if all processes fill the segment
  // (filling.h).
  bool is_closed() const {
    return state == SegmentState::sealed || (state == SegmentState::open && owner == k_no_owner);
  }
  bool is_readable() const { return state == SegmentState::open || state == SegmentState::sealed; }
};

// The word of a SegmentRow or of a ChunkRow.
template <typename Row>
SegmentWord word_of(const Row& row, std::memory_order order = std::memory_order_acquire) {
  return SegmentWord::of_word(row.word.load(order));
}

// Changes the word by one compare-and-swap. False: the word is no longer `from`.
template <typename Row>
bool swap_word(Row& row, SegmentWord from, SegmentWord to) {
  std::uint64_t expected = from.as_word();
  // seq_cst: the next owner sees everything that the previous owner has written. Pairs with the
  // readers in RamTier::pin and Chunks::claim_if. An evictor must check the pins after this swap.
  return row.word.compare_exchange_strong(expected, to.as_word(), std::memory_order_seq_cst);
}

// Leases a segment that has at least `bytes` left: a segment without an owner, or a free segment.
// ENOSPC: no such segment is left.
base::Result<std::uint32_t> lease_segment(Region& region, std::uint64_t bytes);
// Leases `count` consecutive free segments. Returns the first segment, which is OPEN.
base::Result<std::uint32_t> lease_run(Region& region, std::uint32_t count);
// Leases exactly this segment, and reserves its memory. EBUSY: the segment is not free.
base::Result<void> lease_free(Region& region, std::uint32_t segment);
// Reserves memory for one of the next `ahead` free segments. The process that leases this segment
// later then does not wait for memory (4-10 ms if a virtual machine has to ask its host). False:
// all these segments already have memory.
base::Result<bool> prepare_segment(Region& region, std::uint32_t ahead);
// Takes exactly this segment and puts it into `state`. The segment may have no memory. False: the
// segment is not free.
bool take_free(Region& region, std::uint32_t segment, SegmentState state);
// Counts the segments of the run that begins here. Even if the region is corrupt, the count does
// not exceed the region's last segment.
std::uint32_t run_length_of(const Region& region, std::uint32_t first);
// Takes exactly this segment for chunks of large files (chunks.h). The segment is then open to all
// processes, but has no memory yet. EBUSY: the segment is not free.
base::Result<void> take_for_chunks(Region& region, std::uint32_t segment);
// Counts the segments that do not belong to the ring.
std::uint32_t resident_segments(const Region& region);
// Wakes the tiers' writer, because a segment may have new records.
void tell_tier_writer(RegionHeader& header);
// Whether the tiers' writer has reported in the last two seconds.
bool is_tier_writer_alive(const RegionHeader& header);
// Called by the owner of a segment when no more records will be added to it.
void seal_segment(Region& region, std::uint32_t segment);
// Called by the owner of a run, or of a single segment, to give it back. The run must have no
// record that lookups can find.
void free_run(Region& region, std::uint32_t first);
// Called by an owner that leaves, so that another process can lease the rest of the segment.
void release_lease(Region& region, std::uint32_t segment);
void release_leases_of(Region& region, std::uint32_t process_slot);

}  // namespace cube::cache
