// Writes the records that were added to RAM to the tiers, a segment or a chunk of a large file at a
// time. It runs in a background thread of one process of the node. It writes only records that the
// index names, that are confirmed, and that are not marked. It pins a segment while it writes it. A
// segment of the ring may be reclaimed afterwards (Ring::is_awaited), so segments of the ring come
// first. Invariants: a record is written once for each life of its segment, or found to be there
// already; after a pass that failed, no thread waits for the tiers. Thread safety: one thread,
// unless a function's comment says otherwise. All other threads may continue.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cache/region/ram/ram_tier.h"
#include "cache/tier/block_writer.h"
#include "cache/tier/tier.h"

namespace cube::cache {

class TierWriter {
 public:
  // For a cache that has tiers. `block` is as for BlockWriter.
  TierWriter(RamTier& ram, const Tiers& tiers, std::uint64_t block = 0)
      : ram_(ram),
        tiers_(tiers),
        blocks_(ram.region(), tiers, block),
        notes_(ram.region().layout().segment_count) {}

  // For RobustLock; its holder is the one thread of the node that writes.
  pthread_mutex_t* lock() { return &region().header().disk_writer; }
  // Ends wait_for_news. May be called by any thread.
  void wake();

  // Writes all that is new until may_go_on() returns false. Returns how many records, and chunks of
  // large files, were left; on failure, the errno that ended the pass, and the rest is for a later
  // pass. Pins nothing after may_go_on() has returned false: from then on, another process may get
  // this process's row of pins.
  base::Result<std::int64_t> pass(const std::function<bool()>& may_go_on);
  // Counts how often segments got new records. Read it before a pass.
  std::uint32_t news() const;
  // Waits until that count differs from `seen`, wake() is called, or the time is over. A thread
  // that makes is_over() true calls wake() afterwards.
  void wait_for_news(std::uint32_t seen, std::uint64_t at_most_ns,
                     const std::function<bool()>& is_over);
  // Releases the pins of killed processes, which would keep chunks and segments of the ring from
  // being reclaimed.
  void free_claims();
  // Tells waiting threads to stop waiting for this writer.
  void end();
  // Makes all that was written immediately available to the next job. May wait for the tiers.
  void seal();

 private:
  struct Note {
    std::uint32_t generation = 0;        // the segment's generation, one for each life
    std::uint32_t seen = 0;              // SegmentRow::fresh when it was last written
    std::vector<std::uint64_t> written;  // offsets, while it still grows
  };
  bool has_news(std::uint32_t segment) const;
  int write_all(bool of_ring, const std::function<bool()>& may_go_on);
  int write(std::uint32_t segment);  // 0, or an errno
  int write_blocks(const std::function<bool()>& may_go_on);
  void say_alive();

  Region& region() const { return ram_.region(); }

  RamTier& ram_;
  const Tiers& tiers_;
  BlockWriter blocks_;
  std::vector<Note> notes_;  // by segment
  bool has_failed_ = false;  // whether the last pass failed
};

// Notes how full a tier is, for the report.
void note_status(RegionHeader& header, const Tier& tier);

}  // namespace cube::cache
