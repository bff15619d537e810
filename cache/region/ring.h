// The ring is the region's last segments. Prefetched records pass through it once the other
// segments, which keep their records, are full. With a disk tier, files that programs fetch also
// pass through it. Ring also records the first open of every prefetched record, including records
// stored outside the ring.
//
// The leading prefetcher leases its own segments. All programs share one more segment, OPEN and
// without an owner. A writer there holds a pin on the segment and reserves room by a
// compare-and-swap of `fill` (RamTier::reserve_shared). If the writer dies, only a hole remains.
//
// A segment is reclaimed when it has no unread prefetched record, no process has a pin on it, and
// an active disk writer has written all of its records. Programs never map ring records
// (RecordShape::compact), because a mapping inherited by a forked child holds no pin.
//
// If the region was full before make(), the ring has no segment. Then resident segments join it:
// one each time the ring has no other segment to lease, up to the number that a small ring needs.
// They also join if the leader finds the ring too small for its readers (widen). They are reclaimed
// under the same conditions as the ring's first segments. A segment whose records a program has
// ever mapped (note_mapped), or that is part of a run, does not join. A segment may join from any
// place, because the segments in the ring's own place may stay in use for a long time.
//
// Invariants: make() fixes the ring's place permanently; a segment that is pinned or has mapped
// records keeps its bytes. Thread safety: any thread may call note_opened. It is async-signal-safe;
// its only possible system call wakes a waiting leader. One thread of a process at a time calls
// lease, filling and next_filling; one thread of the leading process calls the rest.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "cache/record/record.h"
#include "cache/region/filling.h"
#include "cache/region/region.h"

namespace cube::cache {

class Ring {
 public:
  explicit Ring(Region& region) : region_(&region) {}

  bool is_made() const {
    return region_->header().ring_segments.load(std::memory_order_relaxed) != 0;
  }
  bool holds(const Record& record) const { return is_made() && owns(segment_of(record)); }
  bool owns(std::uint32_t segment) const {
    return region_->segment_row(segment).is_ring.load(std::memory_order_relaxed) != 0;
  }

  // Notes the first open of a prefetched record since it was published. The caller has a pin on it.
  bool note_opened(const Record& record);
  // Notes that a program is about to map this record, which is not the ring's. The caller has a pin
  // on it until it is mapped.
  void note_mapped(const Record& record) {
    // take_used_up checks the pins first, then this mark: if it no longer sees our pin, it sees the
    // mark.
    region_->segment_row(segment_of(record)).is_mapped.store(1, std::memory_order_release);
  }

  // True if anything has passed through the ring.
  bool is_in_use() const;
  // True if the ring is made, but resident records had already taken all of its segments, and no
  // segment can join now.
  bool came_too_late() const;
  // The segments of a ring of this many bytes; 0: the region is too small for one.
  static std::uint32_t segments_for(const RegionLayout& layout, std::uint64_t bytes);
  // Makes a ring of this many bytes: at least four segments, at most half of the region. No-op if
  // there is one.
  void make(std::uint64_t bytes);
  // Returns a segment to fill, OPEN and ours, with memory. ENOSPC: none for now. A resident segment
  // may join to serve the call.
  base::Result<std::uint32_t> lease();
  // Lets lease() take one more resident segment into the ring from now on. False: the ring has a
  // quarter of the region, or may already take one more. Only the leader's Ring object has this
  // change.
  bool widen();
  // The segment that receives programs' fetches.
  Filling filling() const;
  // True if the segment is still the one to fill. The answer stays valid while the caller has a pin
  // on it.
  bool is_open(const Filling& filling) const;
  // Replaces `full` by another segment, unless another process has already done so. ENOSPC: none
  // for now.
  base::Result<void> next_filling(const Filling& full);

  // True if a process writes new records to a disk, and makes progress.
  bool has_disk_writer() const;

  // Bytes of the segments that lease() would return. Sets `is_pinned` if open files of programs
  // keep further segments from being leased.
  std::uint64_t room(bool* is_pinned = nullptr) const;
  // Call it before the record can be found.
  void note_published(const Record& record);
  // Undoes note_published, because lookups no longer find the record, or never will.
  void take_back(const Record& record) { clear_bit(record); }
  // Keeps the segment until the reader has read the record once more. False: the reader has not
  // read it yet, or the record is not the ring's. The caller has a pin on it.
  bool want_again(const Record& record);
  // True if the ring has the record, prefetched and not opened yet. `generation`: that of its
  // segment when the record was published.
  bool is_unread(std::uint32_t segment, std::uint32_t generation, std::uint64_t offset) const;
  // Stops waiting for the records of this segment that have not been opened. Returns how many there
  // were.
  std::uint32_t give_up(std::uint32_t segment);
  // Corrects a count that a killed process left too high; otherwise the segment would never be
  // reclaimed. True: it was wrong.
  bool settle_count(std::uint32_t segment);

  // Sleeps until a segment has been read, at most for `at_most_ns`. Returns false immediately if
  // there is room.
  bool wait_for_room(std::uint64_t at_most_ns);

  // Ends a wait for room.
  void wake();

  std::uint32_t unread(std::uint32_t segment) const {
    return region_->segment_row(segment).unread.load(std::memory_order_relaxed);
  }
  // True if a process has leased the segment.
  bool is_being_filled(std::uint32_t segment) const;
  std::uint32_t end_segment() const { return region_->layout().segment_count; }
  // No segment below this one has joined.
  std::uint32_t lowest_segment() const {
    const std::uint32_t first = first_segment();
    return first - std::min(region_->header().ring_reach.load(std::memory_order_acquire), first);
  }
  // The first segment of the ring's own place.
  std::uint32_t first_segment() const {
    const std::uint32_t all = region_->layout().segment_count;
    return all - std::min(region_->header().ring_segments.load(std::memory_order_relaxed), all);
  }
  std::uint32_t segment_of(const Record& record) const {
    return static_cast<std::uint32_t>(region_->offset_in_data(&record) /
                                      region_->layout().segment_bytes);
  }

 private:
  // True if all of the segment has been read and written to the disk.
  bool is_spent(std::uint32_t segment) const;
  bool is_used_up(std::uint32_t segment) const;
  // True if the segment's records must first be written to the disk.
  bool is_awaited(const SegmentRow& row) const;
  bool is_pinned(std::uint32_t segment) const;
  // True if the ring has so few segments that another one may join.
  bool is_short() const;
  // True if the segment may join, apart from pins on it.
  bool may_join(std::uint32_t segment) const;
  // Returns the first segment that may join and for which take(segment) succeeds.
  template <typename Take>
  std::optional<std::uint32_t> join(Take&& take) const;
  bool can_join() const;
  void note_joined(std::uint32_t segment);
  // Reclaims the segment (reclaim_segment.h) if no process has a pin on it.
  bool take_used_up(std::uint32_t segment);
  bool clear_bit(const Record& record);
  bool count_down(std::uint32_t segment);

  std::uint32_t own(std::uint32_t enough) const;
  std::uint32_t enough() const;

  Region* region_;
  // The number of segments; 0: the ring has not been widened.
  std::atomic<std::uint32_t> widened_to_{0};
  // The segment at which the next search starts, so that the oldest segment comes first.
  std::uint32_t next_ = 0;
};

}  // namespace cube::cache
