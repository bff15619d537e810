// The life of a segment: FREE -> OPEN (leased by one process, which alone writes to it) -> SEALED
// (immutable). A process that leaves a half-full segment leaves it OPEN without an owner, and
// another process leases the rest. A ring segment (ring.h) also goes SEALED -> EVICTING -> OPEN, in
// the next generation; in the ring, all processes may fill a segment that is OPEN without an owner.
// A record larger than a segment takes a run: its first segment and the TAIL segments after it.
// Invariants: one compare-and-swap changes the state, the owner and the generation; a generation is
// never 0. Thread-safe, across processes too.
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
    // A new region is all zero, which means free and never used.
    return {static_cast<SegmentState>(word & 0xff),
            static_cast<std::uint32_t>((word >> 8) & 0xffffff),
            static_cast<std::uint32_t>(word >> 32)};
  }
  std::uint64_t as_word() const {
    return static_cast<std::uint64_t>(state) | (std::uint64_t{owner} << 8) |
           (std::uint64_t{generation} << 32);
  }
  // Sealed, or open without an owner: its owner has exited or has given it back, or all processes
  // fill it (filling.h).
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

// One compare-and-swap. False: the word is no longer `from`.
template <typename Row>
bool swap_word(Row& row, SegmentWord from, SegmentWord to) {
  std::uint64_t expected = from.as_word();
  // seq_cst: the next owner sees what the previous one has written. Readers pair with it in
  // RamTier::pin and Chunks::claim_if, and an evictor must check the pins after it.
  return row.word.compare_exchange_strong(expected, to.as_word(), std::memory_order_seq_cst);
}

// Leases a segment with at least `bytes` left, one without an owner or a free one. ENOSPC: none is
// left.
base::Result<std::uint32_t> lease_segment(Region& region, std::uint64_t bytes);
// Leases `count` consecutive free segments; returns the first, which is OPEN.
base::Result<std::uint32_t> lease_run(Region& region, std::uint32_t count);
// Leases this very segment, with memory. EBUSY: it is not free.
base::Result<void> lease_free(Region& region, std::uint32_t segment);
// Gets memory for one of the next `ahead` free segments, so that the process that leases it need
// not wait for that (4-10 ms if a virtual machine has to ask its host). False: all of them have
// memory.
base::Result<bool> prepare_segment(Region& region, std::uint32_t ahead);
// Takes exactly this segment, which gets that state but may have no memory. False: it is not free.
bool take_free(Region& region, std::uint32_t segment, SegmentState state);
// Counts the segments of the run that begins here, never beyond the region's last segment, even if
// the region is corrupt.
std::uint32_t run_length_of(const Region& region, std::uint32_t first);
// Takes exactly this segment for chunks of large files (chunks.h), for all processes and without
// memory yet. EBUSY: it is not free.
base::Result<void> take_for_chunks(Region& region, std::uint32_t segment);
// Counts the segments that are not the ring's.
std::uint32_t resident_segments(const Region& region);
// Wakes the tiers' writer, because a segment may have new records.
void tell_tier_writer(RegionHeader& header);
// True if the tiers' writer has reported in the last two seconds.
bool is_tier_writer_alive(const RegionHeader& header);
// Called by the owner of a finished segment: nothing will be added.
void seal_segment(Region& region, std::uint32_t segment);
// Called by the owner of a run, or of one segment, to give it back. No record in it can be found.
void free_run(Region& region, std::uint32_t first);
// Called by an owner that leaves; another process may lease the rest.
void release_lease(Region& region, std::uint32_t segment);
void release_leases_of(Region& region, std::uint32_t process_slot);

}  // namespace cube::cache
