#include "prefetch/pace/ring_credit.h"

namespace cube::prefetch {

bool RingCredit::take(unsigned unasked, std::uint64_t now_ns) {
  if (bytes_ < average_) {
    const std::uint64_t promised = unasked * average_;
    const std::uint64_t room = ahead_.ring_room();
    if (room <= room_then_ && now_ns < not_before_ns_) return false;
    bytes_ = room > promised ? room - promised : 0;
  }
  if (bytes_ < average_) return false;
  bytes_ -= average_;
  return true;
}

void RingCredit::note_placed(std::uint64_t bytes) {
  pause_ns_ = k_first_pause_ns;
  not_before_ns_ = 0;
  const auto of_record = std::min(bytes, most_bytes());
  average_ += (static_cast<std::int64_t>(of_record) - static_cast<std::int64_t>(average_)) / 16;
}

void RingCredit::note_no_room(std::uint64_t bytes, std::uint64_t now_ns) {
  bytes_ = 0;
  // Another file of this size would be fetched from another node in vain, too.
  average_ = std::max(average_, std::min(bytes, most_bytes()));
  if (now_ns < not_before_ns_) return;
  room_then_ = ahead_.ring_room();
  not_before_ns_ = now_ns + pause_ns_;
  pause_ns_ = std::min(2 * pause_ns_, k_longest_pause_ns);
}

}  // namespace cube::prefetch
