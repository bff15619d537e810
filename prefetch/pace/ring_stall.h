// For how long has the prefetcher waited for room while nobody has opened a file of the ring, and
// while programs have fetched files by themselves? Then its readers may have left out what is in
// the ring. As long as they open files of it, they will come to the rest: on a busy machine a
// segment is read for longer than a second. Pure: time and counts are told to it. Thread safety:
// one thread.
#pragma once

#include <cstdint>

namespace cube::prefetch {

class RingStall {
 public:
  // Called at each tick. `has_read`: files of the ring were opened since the last one. `demanded`:
  // fetches of programs, so far. Returns nanoseconds; 0: it is not stalled.
  std::uint64_t tick(std::uint64_t now_ns, bool is_blocked, bool has_read, std::uint64_t demanded) {
    if (!is_blocked || has_read || !is_waiting_) {
      is_waiting_ = is_blocked;
      since_ns_ = now_ns;
      demanded_ = demanded;
    }
    return demanded > demanded_ ? now_ns - since_ns_ : 0;
  }
  // Room has been made.
  void end() { is_waiting_ = false; }

 private:
  bool is_waiting_ = false;
  std::uint64_t since_ns_ = 0, demanded_ = 0;
};

}  // namespace cube::prefetch
