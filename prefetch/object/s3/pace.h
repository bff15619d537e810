// Paces the requests to a store: the limit of requests in flight (additive increase, multiplicative
// decrease), and the wait before a retry (exponential, full jitter). Thread safety: one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace cube::s3 {

class InFlightLimit {
 public:
  explicit InFlightLimit(unsigned most) : most_(most), limit_(std::min(most, k_first)) {}

  unsigned now() const { return static_cast<unsigned>(limit_); }
  // Raises the limit by one for each `now()` successes.
  void note_success() { limit_ = std::min<double>(most_, limit_ + 1 / limit_); }
  // `started_ns`: when the request was sent. If the request was sent before the limit was last cut,
  // its slow-down is ignored.
  void note_slow_down(std::uint64_t started_ns, std::uint64_t now_ns) {
    if (started_ns < cut_ns_) return;
    limit_ = std::max(1.0, limit_ / 2);
    cut_ns_ = now_ns;
  }

 private:
  static constexpr unsigned k_first = 64;
  unsigned most_;
  double limit_;
  std::uint64_t cut_ns_ = 0;
};

// How long to wait before a retry. `random` is uniform in [0, 1). `attempt` is 0 before the first
// retry.
inline std::uint64_t backoff_ms(unsigned attempt, double random) {
  constexpr std::uint64_t k_first = 100, k_most = 5000;
  const std::uint64_t most = attempt >= 6 ? k_most : std::min(k_most, k_first << attempt);
  return static_cast<std::uint64_t>(static_cast<double>(most) * random);
}

// Converts a Retry-After header from seconds to milliseconds. Returns 0 if the header is not a
// number of seconds.
inline std::uint64_t retry_after_ms(std::string_view header) {
  std::uint64_t seconds = 0;
  for (const char c : header) {
    if (c < '0' || c > '9' || seconds > 86400) return 0;
    seconds = seconds * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return seconds * 1000;
}

}  // namespace cube::s3
