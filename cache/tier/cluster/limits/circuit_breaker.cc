#include "cache/tier/cluster/limits/circuit_breaker.h"

#include <algorithm>
#include <bit>

#include "cache/base/clock.h"

namespace cube::cache {
namespace {

constexpr std::uint64_t k_longest_rest_ns = 30 * base::k_ns_per_s;

}  // namespace

bool CircuitBreaker::may_ask(std::uint64_t now_ns) {
  if (rests_ == 0) return true;
  if (!allows_requests(now_ns) || is_trial_) return false;
  is_trial_ = true;
  return true;
}

bool CircuitBreaker::note_answer(bool is_late, int most_late) {
  late_ = late_ << 1 | (is_late ? 1 : 0);
  if (!is_late) {
    rests_ = 0;
    is_trial_ = false;
  }
  return is_late && (is_trial_ || std::popcount(late_) >= most_late);
}

void CircuitBreaker::rest(std::uint64_t now_ns, std::uint64_t at_least_ns) {
  const std::uint64_t usual = std::min(base::k_ns_per_s << std::min(rests_, 5U), k_longest_rest_ns);
  rest_until_ns_.store(now_ns + std::max(usual, at_least_ns), std::memory_order_relaxed);
  ++rests_;
  late_ = 0;
  is_trial_ = false;
}

}  // namespace cube::cache
