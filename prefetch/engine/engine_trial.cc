#include "prefetch/engine/engine_trial.h"

#include <algorithm>

namespace cube::prefetch {
namespace {

double power(double base, int exponent) {
  double result = 1;
  for (int i = 0; i < exponent; ++i) result *= base;
  return result;
}

}  // namespace

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
    product_ *= std::clamp(threads / ring, k_least_ratio, k_most_ratio);
    ++(threads >= k_margin * ring ? wins_ : losses_);
  }
  ++pairs_done_;
  is_second_ = false;
}

double EngineTrial::ratio() const {
  const int counted = pairs_done_ - k_warm_pairs;
  if (counted <= 0) return 1.0;
  double low = k_least_ratio, high = k_most_ratio;
  while (high > 1.0000001 * low) {
    const double middle = (low + high) / 2;
    (power(middle, counted) < product_ ? low : high) = middle;
  }
  return high;
}

}  // namespace cube::prefetch
