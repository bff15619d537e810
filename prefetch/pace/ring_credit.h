// RingCredit says whether the ring has room for one more fetch. A fetch asks for its room after it
// has begun, when the size of its file is known. RingCredit counts each fetch that has not asked
// yet with the average size of a record. The caller passes the time (base::monotonic_ns()). Thread
// safety: one thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cache/fetch_ahead.h"

namespace cube::prefetch {

class RingCredit {
 public:
  explicit RingCredit(cache::FetchAhead& ahead) : ahead_(ahead) {}

  // Promises the room of one record. `unasked`: fetches that were promised room and have not asked
  // for it yet. Returns false if there is no room. After note_no_room() it stays false until there
  // is more room than at that time, or a pause is over.
  bool take(unsigned unasked, std::uint64_t now_ns);
  // A record of this many bytes was placed, in the ring or elsewhere.
  void note_placed(std::uint64_t bytes);
  // A file of this many bytes found no room.
  void note_no_room(std::uint64_t bytes, std::uint64_t now_ns);

 private:
  // How long to wait before a retry although there is no more room than before: memory may be short
  // rather than the ring.
  static constexpr std::uint64_t k_first_pause_ns = 1'000'000, k_longest_pause_ns = 500'000'000;
  // A larger file does not go to the ring, which must not wait until it has room for it.
  std::uint64_t most_bytes() const { return ahead_.segment_bytes() / 4; }

  cache::FetchAhead& ahead_;
  std::uint64_t bytes_ = 0;           // bytes that may be promised
  std::uint64_t average_ = 64 << 10;  // bytes of an average record
  std::uint64_t pause_ns_ = k_first_pause_ns, not_before_ns_ = 0, room_then_ = 0;
};

}  // namespace cube::prefetch
