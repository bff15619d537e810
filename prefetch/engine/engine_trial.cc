#include "prefetch/engine/engine_trial.h"

#include <algorithm>
#include <cmath>

namespace cube::prefetch {

Side EngineTrial::side() const {
  if (is_decided()) return wins_ == k_wins ? Side::uring : Side::threads;
  const bool ring_first = pairs_done_ % 2 == 1;
  return ring_first == is_second_ ? Side::threads : Side::uring;
}

void EngineTrial::batch_took(std::uint64_t ns) {
  if (is_decided()) return;
  const std::uint64_t took = std::max<std::uint64_t>(ns, 1);
  if (!is_second_) {
    first_ns_ = took;
    is_second_ = true;
    return;
  }
  const bool ring_is_second = side() == Side::uring;
  const double threads = static_cast<double>(ring_is_second ? first_ns_ : took);
  const double ring = static_cast<double>(ring_is_second ? took : first_ns_);
  if (pairs_done_ >= k_warm_pairs) {
    sum_of_logs_ += std::log(threads / ring);
    ++(threads >= k_margin * ring ? wins_ : losses_);
  }
  ++pairs_done_;
  is_second_ = false;
}

double EngineTrial::ratio() const {
  const int counted = pairs_done_ - k_warm_pairs;
  return counted <= 0 ? 1.0 : std::exp(sum_of_logs_ / counted);
}

}  // namespace cube::prefetch
