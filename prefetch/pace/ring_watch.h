// RingWatch tracks which records of the ring are unread and how far each reader has got. It gives
// up segments that their readers will never finish, because a segment with an unread record cannot
// be reclaimed. It also detects a ring that is too small. The workers of a loader read several
// batches at the same time. If the ring cannot hold all these batches, the prefetcher waits for
// room while programs themselves fetch planned files. Thread safety: any thread may call add();
// only one thread may call the other functions.
//
// RingWatch gives up a segment in four cases:
//  - The segment's readers no longer want any of its unread records (PathSource::passed).
//  - Prefetching is stuck, and (a) or (b) holds: (a) the segment's readers follow the order and are
//    past its unread records; (b) 97 % of its files were read. If the readers do not follow the
//    order, only (b) counts.
//  - A reader has nothing in the ring and fetches its files itself. Then the segment that would be
//    read last is given up.
//  - Prefetching has been stuck for a long time, and a previous leader filled the segment.
//
// Prefetching is stuck while three things hold: it waits for room, no program opens a file of the
// ring, and programs fetch files themselves. In this state, the readers have perhaps skipped the
// files in the ring. Readers that still open files of the ring will reach the rest, although
// reading a segment takes longer than a second on a busy machine.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "cache/base/mutex.h"
#include "cache/region/ram/ram_tier.h"
#include "cache/region/ring.h"
#include "prefetch/order/path_source.h"

namespace cube::prefetch {

class RingWatch {
 public:
  explicit RingWatch(cache::Ring& ring) : ring_(ring) {}

  // Notes that a record was published at this place.
  void add(const cache::RamTier::PlaceInRegion& place, std::uint32_t reader,
           std::uint64_t sequence);

  struct Seen {
    std::uint64_t now_ns = 0;
    bool is_blocked = false;      // the prefetcher waits for room
    std::uint64_t fetched = 0;    // total, by the prefetcher
    std::uint64_t overtaken = 0;  // total planned files that programs fetched first
    std::uint64_t demanded = 0;   // total fetches by programs, of any file
  };
  // Finds the records that have been opened. Called at each tick.
  void look(const Seen& seen);
  // Called after look(). Returns true if one more segment would help, and if so starts a new
  // window.
  bool is_too_small(const Seen& seen);
  // How long prefetching had been stuck at the last look(); 0 if it was not stuck.
  std::uint64_t stuck_ns() const { return stuck_ns_; }
  // Gives up the first segment that qualifies, and returns how many files were given up with it, or
  // 0 if no segment qualifies. `is_starved`: another reader has nothing in the ring.
  std::uint32_t give_up(PathSource& order, bool is_starved);
  // The records that were opened or given up since the last call.
  std::vector<Settled> take_settled();

 private:
  struct UnreadRecord {
    std::uint64_t sequence = 0;
    std::uint32_t offset = 0, reader = 0;
  };
  struct Segment {
    std::uint32_t generation = 0, files = 0;
    std::vector<UnreadRecord> unread = {};
  };
  struct Reader {
    std::uint32_t settled = 0;
    std::uint64_t furthest = 0;  // the highest sequence number opened
    double displacement = 0;     // how far opened files are behind `furthest`, on average
  };

  void note_opened(const UnreadRecord& entry);
  bool look_at(std::uint32_t number, Segment& segment);
  double most_displacement() const;
  bool may_give_up(const Segment& segment, PathSource& order, bool is_stuck, double displacement);
  std::uint64_t ahead_of_readers(const Segment& segment);
  std::uint32_t drop(std::uint32_t number);
  std::uint32_t give_up_unknown();

  cache::Ring& ring_;
  Seen first_, last_;                // the counts at the start of a window, and at the last tick
  std::uint64_t while_blocked_ = 0;  // fetches by programs in the window
  Seen stuck_since_;
  std::uint64_t stuck_ns_ = 0;
  base::Mutex mutex_;  // guards all members below
  std::map<std::uint32_t, Segment> segments_;
  std::map<std::uint32_t, Reader> readers_;
  bool has_read_ = false;     // records were read since the last look
  std::uint32_t next_ = 0;    // the segment at which the next look() begins
  std::uint64_t newest_ = 0;  // the highest sequence number added
};

}  // namespace cube::prefetch
