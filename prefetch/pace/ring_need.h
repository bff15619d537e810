// Is the ring too small for how far apart its readers read? Workers of a loader read several
// batches at the same time, and a segment is used anew only when all of its files have been read.
// In a ring that is too small for that, the prefetcher waits for room while programs fetch files
// that it was told of. Pure. Thread safety: one thread.
#pragma once

#include <cstdint>

namespace cube::prefetch {

class RingNeed {
 public:
  struct Seen {
    std::uint64_t fetched = 0;    // by the prefetcher, so far
    std::uint64_t overtaken = 0;  // files of the plan that programs were quicker to fetch, so far
    std::uint64_t demanded = 0;   // fetches of programs, so far; of whatever file
    bool is_blocked = false;      // the prefetcher waits for room
  };
  // Called at each tick. True, and then from the beginning: one segment more would serve.
  bool is_too_small(const Seen& seen);

 private:
  static constexpr std::uint64_t k_window = 128, k_most_overtaken = 2;  // files

  Seen first_, last_;
  std::uint64_t while_blocked_ = 0;  // fetches of programs
};

}  // namespace cube::prefetch
