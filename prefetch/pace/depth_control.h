// How many fetches may be in flight, so that prefetching does not slow what the job itself waits
// for: twice as many, and after the first set-back one more, for each period in which demand's own
// latency stays near the best that was seen, half of them when it does not, and one while demand
// waits for the origin. But a job that waits more than now and then has outrun the prefetcher,
// which could then never get ahead of it again: for such, only the latency counts
// (doc/benchmarks/prefetch.md). The best is forgotten slowly, for an origin's load changes and so
// does what is good for it. Pure: time and latencies are told to it. Thread safety: one thread.
#pragma once

#include <cstdint>

namespace cube::prefetch {

struct DepthOptions {
  unsigned most = 64;
  std::uint64_t period_ns = 20'000'000;
  double tolerance = 1.5;    // times the best
  double forgetting = 1.01;  // of the best, each period
};

class DepthControl {
 public:
  explicit DepthControl(const DepthOptions& options = {});

  // An operation of the job at the origin took so long.
  void demand_took(std::uint64_t ns);
  // So many operations of the job are at the origin now. Told at every tick.
  void demand_waits(unsigned operations);
  // Called now and then; `in_flight` is the most since the last call, for a depth that nobody uses
  // must not grow.
  void tick(std::uint64_t now_ns, unsigned in_flight);

  unsigned depth() const { return waiting_ != 0 && share_waiting_ < k_has_outrun ? 1 : depth_; }

 private:
  static constexpr double k_has_outrun = 0.05;  // share of the time

  const DepthOptions options_;
  unsigned depth_ = 16, waiting_ = 0;
  bool was_set_back_ = false;
  double share_waiting_ = 0;  // of the last ticks
  std::uint64_t period_began_ns_ = 0;
  double sum_ns_ = 0, best_ns_ = 0;
  unsigned samples_ = 0, most_in_flight_ = 0;
};

}  // namespace cube::prefetch
