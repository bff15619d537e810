// The ring: the region's last segments, which are reclaimed again and again. All other segments are
// resident, which means that they keep their records. When the resident segments are full,
// prefetched records are put into the ring, where they stay until they have been read. With a disk
// tier, records that programs fetch are put into the ring, too. The class Ring also notes the first
// open of every prefetched record, whether or not the record is in the ring.
//
// The leading prefetcher leases its own segments. All programs share another segment, which is OPEN
// and has no owner. To write to this segment, a process pins the segment and reserves room by a
// compare-and-swap of `fill` (RamTier::reserve_shared). If the process dies, it leaves only a hole
// in the segment.
//
// A segment of the ring can be reclaimed when all its prefetched records have been read and no
// process has a pin on it. If a disk writer is active, all records of the segment must also be on
// the disk. Programs never map records of the ring (RecordShape::compact), because a mapping that a
// forked child inherits holds no pin.
//
// If the region was full before make(), resident records already occupy the ring's place. Resident
// segments then join the ring. One segment joins whenever the ring has no other segment to lease,
// until the ring has as many segments as a small ring needs. Segments also join if the leader finds
// the ring too small for its readers (widen). Segments that have joined are reclaimed under the
// same conditions as the ring's original segments. Two kinds of segments do not join: segments with
// a record that a program has ever mapped (note_mapped), and segments of a run. A segment can join
// from anywhere in the region, because the segments in the ring's own place may stay in use for a
// long time.
//
// Invariants: make() fixes the ring's place permanently. A segment that is pinned or has mapped
// records keeps its bytes. Thread safety: any thread may call note_opened. note_opened is
// async-signal-safe, and its only possible system call wakes a waiting leader. Only one thread of a
// process at a time may call lease, filling and next_filling. Only one thread of the leading
// process may call the other functions.
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

  // Notes that a record is opened. True: this is the first open of a prefetched record since it was
  // published. The caller must have a pin on the record.
  bool note_opened(const Record& record);
  // Notes that a program is about to map this record, which does not belong to the ring. The caller
  // must have a pin on the record until the program has mapped it.
  void note_mapped(const Record& record) {
    // Release: the caller ends its pin only after this store. take_used_up checks the pins first,
    // then this mark. So if take_used_up no longer sees the pin, it sees the mark.
    region_->segment_row(segment_of(record)).is_mapped.store(1, std::memory_order_release);
  }

  // Whether any record has passed through the ring.
  bool is_in_use() const;
  // True if the ring exists, but resident records had already taken all of its segments, and no
  // segment can join now.
  bool came_too_late() const;
  // The number of segments in a ring of this many bytes; 0: the region is too small for a ring.
  static std::uint32_t segments_for(const RegionLayout& layout, std::uint64_t bytes);
  // Makes a ring of this many bytes, but with at least four segments and at most half of the
  // region. Does nothing if the ring exists.
  void make(std::uint64_t bytes);
  // Returns a segment to fill. The segment is OPEN, belongs to this process, and has memory. A
  // resident segment may join the ring for this purpose. ENOSPC: there is currently no such
  // segment.
  base::Result<std::uint32_t> lease();
  // Allows lease() to take one more resident segment into the ring. False: the ring already has a
  // quarter of the region, or lease() is already allowed to take one more segment. The change
  // affects only the leader's Ring object.
  bool widen();
  // The shared segment, which all programs fill with records that they fetch.
  Filling filling() const;
  // Whether the segment is still open to all processes. The answer stays valid while the caller has
  // a pin on the segment.
  bool is_open(const Filling& filling) const;
  // Replaces `full` by another segment, unless another process has already replaced it. ENOSPC:
  // there is currently no other segment.
  base::Result<void> next_filling(const Filling& full);

  // Whether a process writes new records to a disk and makes progress.
  bool has_disk_writer() const;

  // The total size in bytes of the segments that lease() could return now. Sets `is_pinned` if
  // lease() could return at least one more segment, were it not pinned by a program that has a file
  // open.
  std::uint64_t room(bool* is_pinned = nullptr) const;
  // Notes that a prefetched record waits for its first open. Call it before the record can be
  // found.
  void note_published(const Record& record);
  // Undoes note_published. Used if lookups no longer find the record, or will never find it.
  void take_back(const Record& record) { clear_bit(record); }
  // Keeps the segment until the record has been opened once more. False: the record still waits for
  // its first open, or is not a prefetched record of the ring. The caller must have a pin on the
  // record.
  bool want_again(const Record& record);
  // Whether the ring still has this prefetched record and the record has not been opened yet.
  // `generation`: the generation of the segment when the record was published.
  bool is_unread(std::uint32_t segment, std::uint32_t generation, std::uint64_t offset) const;
  // Makes the ring stop waiting for the records of this segment that have not been opened. Returns
  // the number of these records.
  std::uint32_t give_up(std::uint32_t segment);
  // Corrects a count that a killed process left too high. Without the correction, the segment would
  // never be reclaimed. True: the count was wrong.
  bool settle_count(std::uint32_t segment);

  // Sleeps until a segment has been read, but for at most `at_most_ns`. False: the ring already has
  // room, so the function returns immediately.
  bool wait_for_room(std::uint64_t at_most_ns);

  // Ends a wait for room.
  void wake();

  std::uint32_t unread(std::uint32_t segment) const {
    return region_->segment_row(segment).unread.load(std::memory_order_relaxed);
  }
  // Whether a process has leased the segment.
  bool is_being_filled(std::uint32_t segment) const;
  std::uint32_t end_segment() const { return region_->layout().segment_count; }
  // The lowest segment that has joined, or first_segment() if none has joined.
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
  // Whether all prefetched records of the segment have been read, and all records that the disk
  // must get have been written.
  bool is_spent(std::uint32_t segment) const;
  bool is_used_up(std::uint32_t segment) const;
  // Whether records of the segment must still be written to the disk.
  bool is_awaited(const SegmentRow& row) const;
  bool is_pinned(std::uint32_t segment) const;
  // Whether the ring has so few segments that another segment may join.
  bool is_short() const;
  // Whether the segment may join. Does not consider pins on the segment.
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
  // The number of segments to which the ring was widened; 0: it was not widened.
  std::atomic<std::uint32_t> widened_to_{0};
  // The segment at which the next search starts, so that the search finds the oldest segment first.
  std::uint32_t next_ = 0;
};

}  // namespace cube::cache
