// Detects a ring that is too small for how far apart its readers read. Workers of a loader read
// several batches at the same time, and a segment is reused only when all of its files have been
// read. If the ring is too small for that, the prefetcher waits for room while programs fetch files
// of its plan themselves. Pure. Thread safety: one thread.
#pragma once

#include <cstdint>

namespace cube::prefetch {

class RingNeed {
 public:
  struct Seen {
    std::uint64_t fetched = 0;    // total, by the prefetcher
    std::uint64_t overtaken = 0;  // total of planned files that programs fetched first
    std::uint64_t demanded = 0;   // total fetches by programs, of any file
    bool is_blocked = false;      // the prefetcher waits for room
  };
  // Called at each tick. Returns true if one more segment would help, and then starts again from
  // zero.
  bool is_too_small(const Seen& seen);

 private:
  static constexpr std::uint64_t k_window = 128, k_most_overtaken = 2;  // files

  Seen first_, last_;
  std::uint64_t while_blocked_ = 0;  // fetches by programs
};

}  // namespace cube::prefetch
