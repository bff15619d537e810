// Writes new records in RAM to the tiers, one segment or one chunk of a large file at a time. The
// writer runs in a background thread of one process of the node. A record is written only if it is
// in the index, confirmed, and not marked. While it writes the records of a segment, the segment is
// pinned. Segments of the ring are written first, because they can be reclaimed after that
// (Ring::is_awaited). Invariants: as long as its segment is not reclaimed, a record is written at
// most once. After a pass that failed, no thread waits for the tiers. Thread safety: one thread,
// unless the comment of a function says otherwise. All other threads may continue.
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
  // `tiers` must not be empty. `block` is as for BlockWriter.
  TierWriter(RamTier& ram, const Tiers& tiers, std::uint64_t block = 0)
      : ram_(ram),
        tiers_(tiers),
        blocks_(ram.region(), tiers, block),
        notes_(ram.region().layout().segment_count) {}

  // The mutex for a RobustLock. Only the thread that holds it may write to the tiers.
  pthread_mutex_t* lock() { return &region().header().disk_writer; }
  // Ends wait_for_news(). Any thread may call it.
  void wake();

  // Writes new records and blocks until all are written or may_go_on() returns false. Returns how
  // many records, and chunks of large files, are left. On failure, returns the errno that ended the
  // pass; a later pass can write the rest. After may_go_on() has returned false, nothing is pinned,
  // because another process may get this process's row of pins then.
  base::Result<std::int64_t> pass(const std::function<bool()>& may_go_on);
  // A count that increases whenever a segment gets new records. Read it before a pass.
  std::uint32_t news() const;
  // Waits until news() differs from `seen` or wake() is called, but at most `at_most_ns`. A thread
  // that makes is_over() true must call wake() afterwards.
  void wait_for_news(std::uint32_t seen, std::uint64_t at_most_ns,
                     const std::function<bool()>& is_over);
  // Releases the pins of killed processes, because these pins would keep chunks and segments of the
  // ring from being reclaimed.
  void free_claims();
  // Makes threads that wait for this writer stop waiting.
  void end();
  // After it, the next job can use all written records immediately. May wait for the tiers.
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
