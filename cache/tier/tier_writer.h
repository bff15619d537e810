// Writes what has come into RAM to the tiers, a segment or a chunk of a large file at a time; for a
// thread in the background, of one process of the node. Only what the index names is written, and
// confirmed, and unmarked. A segment is held meanwhile. One of the ring may be used anew afterwards
// (Ring::is_awaited), so these come first. Invariants: a record is written once for each life of
// its segment, or found to be there already; after a pass that gave an error nobody waits for the
// tiers. Thread safety: one thread, but for what is said. Everything else may go on meanwhile.
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
  // For a cache that has tiers. `block`: as BlockWriter has it.
  TierWriter(RamTier& ram, const Tiers& tiers, std::uint64_t block = 0)
      : ram_(ram),
        tiers_(tiers),
        blocks_(ram.region(), tiers, block),
        notes_(ram.region().layout().segment_count) {}

  // Its holder is the one thread of the node that writes; for RobustLock.
  pthread_mutex_t* lock() { return &region().header().disk_writer; }
  // Ends wait_for_news. Any thread.
  void wake();

  // Writes all that is new until may_go_on() says no. How many records, and chunks of large files,
  // were left; the errno of what ended it: the rest is for a later pass. Nothing is pinned after
  // the time is over: the process may have given its row of pins to another by then.
  base::Result<std::int64_t> pass(const std::function<bool()>& may_go_on);
  // A count of the segments that have news; before a pass.
  std::uint32_t news() const;
  // Until there is other news than that, wake(), or the time is over. A thread that makes is_over()
  // true calls wake() then.
  void wait_for_news(std::uint32_t seen, std::uint64_t at_most_ns,
                     const std::function<bool()>& is_over);
  // Takes back the claims of processes that were killed, which would keep segments of the ring, and
  // chunks, from being used.
  void free_claims();
  // Nobody shall wait for this one any more.
  void end();
  // A next job finds at once all that was written. It may wait for the tiers.
  void seal();

 private:
  struct Note {
    std::uint32_t generation = 0;        // of the segment; another one is another life
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
  bool has_failed_ = false;  // the last pass
};

// How full a tier is, for the report.
void note_status(RegionHeader& header, const Tier& tier);

}  // namespace cube::cache
