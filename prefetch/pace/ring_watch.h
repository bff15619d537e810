// RingWatch tracks which records of the ring are unread and how far each reader has got. It gives
// up segments that their readers will never finish, because a segment with an unread record cannot
// be reclaimed. It also detects a ring that is too small. The workers of a loader read several
// batches at the same time; if the ring does not hold all of these, the prefetcher waits for room
// while programs themselves fetch files of its plan. Thread safety: add() by any thread, the rest
// by one.
//
// It gives up a segment in four cases:
//  - The segment's readers no longer want any of its unread records (PathSource::passed).
//  - Prefetching is stuck, and (a) or (b) holds: (a) the segment's readers follow the order and are
//    past its unread records; (b) 97 % of its files were read. If the readers do not follow the
//    order, only (b) counts.
//  - A reader has nothing in the ring and fetches its files itself. Then the segment that would be
//    read last is given up.
//  - Prefetching has been stuck for long, and a previous leader has filled the segment.
//
// Prefetching is stuck while it waits for room, no program opens a file of the ring, and programs
// fetch files themselves, because then the readers may have skipped the files in the ring. As long
// as they open files of the ring, they will reach the rest: on a busy machine a segment is read for
// longer than a second.
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
    std::uint64_t overtaken = 0;  // total of planned files that programs fetched first
    std::uint64_t demanded = 0;   // total fetches by programs, of any file
  };
  // Finds the records that have been opened. Called at each tick.
  void look(const Seen& seen);
  // Called after look(). Returns true if one more segment would help, and then starts again from
  // zero.
  bool is_too_small(const Seen& seen);
  // For how long prefetching had been stuck at the last look(); 0: it was not stuck.
  std::uint64_t stuck_ns() const { return stuck_ns_; }
  // Gives up the first segment that qualifies. Returns how many files were given up with it; 0: no
  // segment qualifies. `is_starved`: another reader has nothing in the ring.
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
    double displacement = 0;     // how far opened files are behind that, on average
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
  base::Mutex mutex_;  // guards the rest
  std::map<std::uint32_t, Segment> segments_;
  std::map<std::uint32_t, Reader> readers_;
  bool has_read_ = false;     // records were read since the last look
  std::uint32_t next_ = 0;    // the segment at which the next look() begins
  std::uint64_t newest_ = 0;  // the highest sequence number added
};

}  // namespace cube::prefetch
