#include "prefetch/pace/depth_control.h"

#include <algorithm>

namespace cube::prefetch {

DepthControl::DepthControl(const DepthOptions& options)
    : options_(options), depth_(std::clamp(options.most, 1U, 16U)) {}

void DepthControl::demand_took(std::uint64_t ns) {
  sum_ns_ += static_cast<double>(ns);
  ++samples_;
}

void DepthControl::demand_waits(unsigned operations) {
  constexpr double k_weight = 1.0 / 64;
  waiting_ = operations;
  share_waiting_ += ((operations != 0 ? 1.0 : 0.0) - share_waiting_) * k_weight;
}

void DepthControl::tick(std::uint64_t now_ns, unsigned in_flight) {
  most_in_flight_ = std::max(most_in_flight_, in_flight);
  if (period_began_ns_ == 0) period_began_ns_ = now_ns;
  // A clock that was set back begins a new period, too.
  if (now_ns >= period_began_ns_ && now_ns - period_began_ns_ < options_.period_ns) return;
  period_began_ns_ = now_ns;
  bool is_slow = false;
  if (samples_ != 0) {
    const double mean = sum_ns_ / samples_;
    best_ns_ = best_ns_ == 0 ? mean : std::min(best_ns_ * options_.forgetting, mean);
    is_slow = mean > best_ns_ * options_.tolerance;
  }
  if (is_slow) {
    depth_ = std::max(1U, depth_ / 2);
    was_set_back_ = true;
  } else if (most_in_flight_ >= depth_) {
    depth_ = std::min(was_set_back_ ? depth_ + 1 : 2 * depth_, options_.most);
  }
  sum_ns_ = 0;
  samples_ = 0;
  most_in_flight_ = 0;
}

}  // namespace cube::prefetch
