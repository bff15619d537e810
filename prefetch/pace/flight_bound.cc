#include "prefetch/pace/flight_bound.h"

#include <algorithm>
#include <utility>

namespace cube::prefetch {
namespace {

// Below this bound a step doubles it, above it a step adds a quarter. An overshoot costs the
// program a period of slow fetches.
constexpr unsigned k_few = 4;

}  // namespace

void FlightBound::fetches_took(std::uint64_t ns, std::uint64_t fetches) {
  sum_ns_ += static_cast<double>(ns);
  fetches_ += fetches;
}

void FlightBound::measure_anew(std::uint64_t now_ns) {
  bound_ = 1;
  least_ns_ = 0;
  measured_ns_ = now_ns;
  is_draining_ = true;
  was_set_back_ = false;
  begin_period(now_ns);
}

void FlightBound::tick(std::uint64_t now_ns, unsigned in_flight, bool demand_waits) {
  if (demand_waits) waited_ns_ = now_ns;
  if (!demand_waits && (!is_on_ || now_ns - waited_ns_ >= options_.hold_ns)) {
    is_on_ = false;
    bound_ = options_.most;
    return begin_period(now_ns);
  }
  // A clock that was set back also restarts the measurement.
  const bool is_old = fetches_ != 0 && now_ns - measured_ns_ >= options_.anew_ns;
  if (!std::exchange(is_on_, true) || is_old) measure_anew(now_ns);
  if (is_draining_) return drain(now_ns, in_flight);
  most_in_flight_ = std::max(most_in_flight_, in_flight);
  const std::uint64_t took_ns = now_ns - period_began_ns_;
  if (took_ns < options_.period_ns ||
      (fetches_ < options_.fetches_of_period && took_ns < options_.longest_period_ns))
    return;
  end_period();
  begin_period(now_ns);
}

void FlightBound::begin_period(std::uint64_t now_ns) {
  period_began_ns_ = now_ns;
  most_in_flight_ = 0;
  fetches_ = 0;
  sum_ns_ = 0;
}

void FlightBound::drain(std::uint64_t now_ns, unsigned in_flight) {
  // A fetch that is in flight for so long hangs or is a large file: nobody knows when it will end.
  const bool is_over = in_flight <= bound_,
             is_stuck = fetches_ == 0 && now_ns - period_began_ns_ >= options_.longest_period_ns;
  if (is_stuck && !is_over) bound_ = options_.most;
  is_draining_ = !is_over && !is_stuck;
  if (fetches_ != 0 || !is_draining_) begin_period(now_ns);
}

void FlightBound::end_period() {
  // No fetch that can be measured has ended; only blocks of large files come.
  if (fetches_ == 0) {
    bound_ = options_.most;
    return;
  }
  const double mean = sum_ns_ / static_cast<double>(fetches_);
  if (least_ns_ == 0 || mean < least_ns_) least_ns_ = mean;
  const double most_ns = options_.tolerance * least_ns_;
  if (mean > most_ns) {
    const auto share = static_cast<unsigned>(bound_ * most_ns / mean);
    bound_ = std::max(1U, std::min(share, bound_ - 1));
    was_set_back_ = is_draining_ = true;
  } else if (most_in_flight_ >= bound_) {
    const unsigned step = was_set_back_ ? 1 : bound_ < k_few ? bound_ : bound_ / k_few;
    bound_ = std::min(bound_ + step, options_.most);
  }
}

}  // namespace cube::prefetch
