// RingWatch tracks which ring records are unread, how far each reader has got, and which segments
// the readers have skipped.
//
// A segment with an unread record is not reused, so RingWatch must give up a segment that its
// readers never finish. It gives up a segment in three cases:
//  - The segment's readers no longer want any of its unread records (PathSource::passed).
//  - Prefetching is stuck for room, programs fetch for themselves, and (a) or (b) holds: (a) the
//    segment's readers follow the order and are past its unread records; (b) 97 % of its files were
//    read. If the readers do not follow the order, only (b) counts.
//  - The segment's readers have long made no progress while another reader, which has nothing in
//    the ring, fetches its own files.
// Thread safety: add() by any thread, the rest by one.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "cache/base/mutex.h"
#include "cache/region/ring.h"
#include "prefetch/order/path_source.h"

namespace cube::prefetch {

struct Settled {
  std::uint32_t reader = 0, files = 0;
};

void add_settled(std::vector<Settled>& settled, std::uint32_t reader, std::uint32_t files);

class RingWatch {
 public:
  explicit RingWatch(cache::Ring& ring) : ring_(ring) {}

  struct PlaceInRing {
    std::uint32_t segment = 0, generation = 0;
    std::uint64_t offset = 0;  // bytes
  };
  void add(const PlaceInRing& place, std::uint32_t reader, std::uint64_t sequence);

  // Returns the records that have been opened since the last call, counted by reader.
  std::vector<Settled> look();
  // Gives up the first segment that qualifies. Returns how many files were given up with it; 0: no
  // segment qualifies. `is_stuck`: see above.
  std::uint32_t give_up(PathSource& order, bool is_stuck, std::vector<Settled>& settled);
  // Like give_up, for when another reader has nothing in the ring: gives up the segment that its
  // readers would reach last.
  std::uint32_t give_up_furthest(std::vector<Settled>& settled);
  // Gives up one segment that a former leader has filled.
  std::uint32_t give_up_unknown();

 private:
  struct UnreadRecord {
    std::uint64_t sequence = 0;
    std::uint32_t offset = 0, reader = 0;
  };
  struct Segment {
    std::uint32_t generation = 0, files = 0;
    std::vector<UnreadRecord> unread;
  };
  struct Reader {
    std::uint64_t furthest = 0;  // the highest sequence number opened
    double displacement = 0;     // how far opened files are behind that, on average
  };

  void note_opened(const UnreadRecord& entry, std::vector<Settled>& settled);
  bool look_at(std::uint32_t number, Segment& segment);
  double most_displacement() const;
  std::uint32_t drop(std::uint32_t number, Segment& segment, std::vector<Settled>& settled);
  bool may_give_up(const Segment& segment, PathSource& order, bool is_stuck, double displacement);

  cache::Ring& ring_;
  base::Mutex mutex_;  // guards the rest
  std::map<std::uint32_t, Segment> segments_;
  std::map<std::uint32_t, Reader> readers_;
  std::vector<Settled> settled_;  // returned by the next look()
  std::uint32_t next_ = 0;        // the segment at which the next look() begins
  std::uint64_t newest_ = 0;      // the highest sequence number added
};

}  // namespace cube::prefetch
