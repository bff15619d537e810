// Measures how long the prefetcher has waited for room while nobody has opened a file of the ring
// and programs have fetched files themselves. Its readers may then have skipped the files in the
// ring. As long as they open files of the ring, they will reach the rest: on a busy machine a
// segment is read for longer than a second. Pure: the caller passes time and counts. Thread safety:
// one thread.
#pragma once

#include <cstdint>

namespace cube::prefetch {

class RingStall {
 public:
  // Called at each tick. `has_read`: files of the ring were opened since the last tick. `demanded`:
  // total fetches by programs. Returns nanoseconds; 0: not stalled.
  std::uint64_t tick(std::uint64_t now_ns, bool is_blocked, bool has_read, std::uint64_t demanded) {
    if (!is_blocked || has_read || !is_waiting_) {
      is_waiting_ = is_blocked;
      since_ns_ = now_ns;
      demanded_ = demanded;
    }
    return demanded > demanded_ ? now_ns - since_ns_ : 0;
  }
  // Room was made.
  void end() { is_waiting_ = false; }

 private:
  bool is_waiting_ = false;
  std::uint64_t since_ns_ = 0, demanded_ = 0;
};

}  // namespace cube::prefetch
