// Computes when a reply may be sent, from the latency of each operation and the bandwidth that all
// reads share.
//
// Thread safety: all members may be called from any thread. Time is CLOCK_MONOTONIC in nanoseconds.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "ops.h"

namespace cube::lagfs {

using Nanoseconds = std::int64_t;

Nanoseconds now_ns();
// Sleeps until `deadline`; returns immediately if it has passed. The deadline is absolute, so an
// interrupted sleep does not drift.
void sleep_until(Nanoseconds deadline);

class Latency {
 public:
  using PerCost = std::array<std::int64_t, k_cost_count>;  // microseconds

  // `bandwidth` in bytes per second; 0: no cap.
  Latency(const PerCost& microseconds, double bandwidth);

  // Returns the time at which the reply to an operation may be sent. The operation began at `start`
  // and carries `bytes` from the origin. Also claims the bandwidth, so call it exactly one time for
  // each reply.
  Nanoseconds reply_time(Op op, Nanoseconds start, std::uint64_t bytes);

 private:
  // A token bucket as deep as one read: returns the time at which `bytes` have been transferred.
  Nanoseconds claim_bandwidth(Nanoseconds start, std::uint64_t bytes);

  PerCost microseconds_;
  double ns_per_byte_;
  std::atomic<Nanoseconds> wire_free_at_{0};
};

}  // namespace cube::lagfs
