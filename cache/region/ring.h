// The ring is the region's last segments. Prefetched records pass through it once the other
// segments, which keep their records, are full. With a disk tier, files that programs fetch do too.
// Ring also records the first open of every prefetched record, including records stored outside the
// ring.
//
// The leading prefetcher leases its own segments. All programs share one more segment, OPEN and
// without owner. A writer there holds a claim on the segment and reserves room by a
// compare-and-swap of `fill` (RamTier::reserve_shared). If it dies, only a hole remains.
//
// A segment is reused when no prefetched record in it is unread, nobody has a claim on it, and an
// active disk writer has written all of its records. Programs never map ring records
// (RecordShape::compact), because a mapping inherited by a forked child holds no claim.
//
// A region that was full before make() has no segment for the ring. Then resident segments join it,
// one when the ring has no other to lease, and no more than a small ring needs. They also join
// where the leader finds the ring too small for its readers (widen). The same rules hold for them.
// One whose records a program has ever mapped (note_mapped), or that is part of a run, does not
// join. A segment may join from any place, because those in the ring's own place may be in use for
// long.
//
// Invariants: make() settles the ring's place once and for all; a segment that somebody has a claim
// on keeps its bytes, and so does one with mapped records. Thread safety: any thread may call
// note_opened. It is async-signal-safe; its only possible system call wakes a waiting leader. One
// thread of a process at a time calls lease, filling and next_filling; one thread of the leading
// process calls the rest.
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

  // The first open of a prefetched record since it was published; whoever calls has a pin on it.
  bool note_opened(const Record& record);
  // A program is about to map this record, which is not the ring's. The caller has a pin on it
  // until it is mapped.
  void note_mapped(const Record& record) {
    // take_used_up looks at the claims first, and at this then: if our claim is gone, it sees this.
    region_->segment_row(segment_of(record)).is_mapped.store(1, std::memory_order_release);
  }

  // Has anything passed through it?
  bool is_in_use() const;
  // It is made, but records that stay had taken all of its segments before, and none of all can
  // join now.
  bool came_too_late() const;
  // Makes a ring of so many bytes. No-op if there is one. At least four segments, at most half of
  // the region.
  void make(std::uint64_t bytes);
  // A segment to fill, OPEN and ours, with memory. ENOSPC: none for now. A resident one may join
  // for that.
  base::Result<std::uint32_t> lease();
  // lease() lets one more resident segment join from now on. False: the ring has a quarter of the
  // region, or may have one more already. The leader alone knows of it.
  bool widen();
  // The segment that programs' fetches go to.
  Filling filling() const;
  // Is it still to be filled? The holder of a claim on it may rely on that.
  bool is_open(const Filling& filling) const;
  // Another one in the place of this, unless somebody has been quicker. ENOSPC: none for now.
  base::Result<void> next_filling(const Filling& full);

  // Does somebody write what comes into memory to a disk, and get on with it?
  bool has_disk_writer() const;

  // Bytes of segments that lease() would give. `is_pinned`: there would be more if nobody had its
  // files open.
  std::uint64_t room(bool* is_pinned = nullptr) const;
  // Before the record can be found.
  void note_published(const Record& record);
  // It will not be found after all, or no more.
  void take_back(const Record& record) { clear_bit(record); }
  // It is there still, and its reader wants it once more: its segment is kept until then. False: he
  // has not had it yet, or it is not the ring's. The caller has a pin on it.
  bool want_again(const Record& record);
  // Is it there, prefetched and not opened yet? `generation` is that of its segment when it was
  // published.
  bool is_unread(std::uint32_t segment, std::uint32_t generation, std::uint64_t offset) const;
  // Records of this segment that have not been opened will not be waited for. Returns how many.
  std::uint32_t give_up(std::uint32_t segment);
  // Puts a count right that somebody who was killed has left behind: the segment would never be
  // used anew. True: it was wrong.
  bool settle_count(std::uint32_t segment);

  // Sleeps until a segment has been read, no longer than this. False at once where there is room.
  bool wait_for_room(std::uint64_t at_most_ns);

  // Ends a wait for room.
  void wake();

  std::uint32_t unread(std::uint32_t segment) const {
    return region_->segment_row(segment).unread.load(std::memory_order_relaxed);
  }
  // A process has leased it.
  bool is_being_filled(std::uint32_t segment) const;
  std::uint32_t end_segment() const { return region_->layout().segment_count; }
  // No segment in front of this one has joined.
  std::uint32_t lowest_segment() const {
    const std::uint32_t first = first_segment();
    return first - std::min(region_->header().ring_reach.load(std::memory_order_acquire), first);
  }
  // The ring's own place begins here.
  std::uint32_t first_segment() const {
    const std::uint32_t all = region_->layout().segment_count;
    return all - std::min(region_->header().ring_segments.load(std::memory_order_relaxed), all);
  }
  std::uint32_t segment_of(const Record& record) const {
    return static_cast<std::uint32_t>(region_->offset_in_data(&record) /
                                      region_->layout().segment_bytes);
  }

 private:
  // All of it has been read, and is on the disk.
  bool is_spent(std::uint32_t segment) const;
  bool is_used_up(std::uint32_t segment) const;
  // The disk is to have it first.
  bool is_awaited(const SegmentRow& row) const;
  bool is_pinned(std::uint32_t segment) const;
  // Has it so few segments that another one may join?
  bool is_short() const;
  // Would the rules let it join, if nobody had a claim on it?
  bool may_join(std::uint32_t segment) const;
  // The first that may join and that take(segment) takes.
  template <typename Take>
  std::optional<std::uint32_t> join(Take&& take) const;
  bool can_join() const;
  void note_joined(std::uint32_t segment);
  // Nobody has a claim: EVICTING, a look at all claims, then ours, of the next generation.
  bool take_used_up(std::uint32_t segment);
  bool clear_bit(const Record& record);
  bool count_down(std::uint32_t segment);

  std::uint32_t own(std::uint32_t enough) const;
  std::uint32_t enough() const;

  Region* region_;
  std::atomic<std::uint32_t> widened_to_{0};  // segments; 0: nobody has widened it
  std::uint32_t next_ = 0;                    // where to look first, so that the oldest comes first
};

}  // namespace cube::cache
