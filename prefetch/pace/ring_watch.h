// RingWatch tracks which ring records are unread, how far each reader has got, and which segments
// the readers have skipped.
//
// A segment with an unread record is not reused, so one that its readers never finish must be given
// up:
//  - if its readers no longer want any of its unread records (PathSource::passed), or
//  - if prefetching is stuck for room, programs fetch for themselves, and (a) or (b) holds. (a) Its
//  readers follow the order
//    and are past its unread records. (b) 97 % of its files were read. If the readers do not follow
//    the order, only (b) counts, or
//  - if its readers have stood still for long while another one, of whom the ring has nothing,
//  fetches for himself.
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

  // The records that have been opened since the last look.
  std::vector<Settled> look();
  // The files given up with the first such segment; 0: there is none. `is_stuck`: see above.
  std::uint32_t give_up(PathSource& order, bool is_stuck, std::vector<Settled>& settled);
  // The same, where another reader has nothing in the ring: what its readers come to last.
  std::uint32_t give_up_furthest(std::vector<Settled>& settled);
  // The same of segments that a former leader has filled; one.
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
    double displacement = 0;     // how far behind that an opened file is, on average
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
  std::vector<Settled> settled_;  // to be told by the next look
  std::uint32_t next_ = 0;        // segment to begin the next look with
  std::uint64_t newest_ = 0;      // the highest sequence number added
};

}  // namespace cube::prefetch
