#include "prefetch/pace/ring_need.h"

namespace cube::prefetch {

bool RingNeed::is_too_small(const Seen& seen) {
  // A process that ends takes its counts with it.
  if (seen.is_blocked && last_.is_blocked && seen.demanded > last_.demanded)
    while_blocked_ += seen.demanded - last_.demanded;
  last_ = seen;
  const std::uint64_t overtaken = seen.overtaken - first_.overtaken;
  const bool is_too_small = overtaken > k_most_overtaken && while_blocked_ > k_most_overtaken;
  if (is_too_small || seen.fetched - first_.fetched + overtaken >= k_window) {
    first_ = seen;
    while_blocked_ = 0;
  }
  return is_too_small;
}

}  // namespace cube::prefetch
