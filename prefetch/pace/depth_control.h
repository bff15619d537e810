// A controller of how many fetches may be in flight, so that prefetching does not slow the job's
// own requests. In each period in which demand's own latency stays near the best seen, the depth
// doubles, or grows by one after the first setback; otherwise it halves. The depth is one while
// demand waits for the origin. But a job that waits more than now and then has outrun the
// prefetcher, which could then never get ahead of it again: for such a job only the latency counts
// (doc/benchmarks/prefetch.md). The best latency is forgotten slowly, because an origin's load
// changes and so does the depth that suits it. Pure: the caller passes time and latencies. Thread
// safety: one thread.
#pragma once

#include <cstdint>

namespace cube::prefetch {

struct DepthOptions {
  unsigned most = 64;
  std::uint64_t period_ns = 20'000'000;
  double tolerance = 1.5;    // multiple of the best latency
  double forgetting = 1.01;  // factor on the best latency, each period
};

class DepthControl {
 public:
  explicit DepthControl(const DepthOptions& options = {});

  // One operation of the job took this long at the origin.
  void demand_took(std::uint64_t ns);
  // This many operations of the job are at the origin now. Call at every tick.
  void demand_waits(unsigned operations);
  // Called now and then. `in_flight` is the maximum since the last call: an unused depth must not
  // grow.
  void tick(std::uint64_t now_ns, unsigned in_flight);

  unsigned depth() const { return waiting_ != 0 && share_waiting_ < k_has_outrun ? 1 : depth_; }

 private:
  static constexpr double k_has_outrun = 0.05;  // share of the time

  const DepthOptions options_;
  unsigned depth_ = 16, waiting_ = 0;
  bool was_set_back_ = false;
  double share_waiting_ = 0;  // over the last ticks
  std::uint64_t period_began_ns_ = 0;
  double sum_ns_ = 0, best_ns_ = 0;
  unsigned samples_ = 0, most_in_flight_ = 0;
};

}  // namespace cube::prefetch
