// A bound on how many fetches may be in flight while a program waits for files that the prefetcher
// was not told about (foreign_demand.h). The bound keeps fetches from queueing at the origin,
// because the program's own request would stand behind them.
//
// A queue shows in the latency of the fetches. It is first measured with one fetch in flight. Then
// the bound grows each period, first by a factor of two and later by a quarter, as long as a fetch
// takes hardly longer than that. When it does take longer, the bound falls by the same factor, and
// afterwards grows by one each period. From time to time the measurement starts again, because an
// origin's speed and the sizes of files change.
//
// Without such a program there is no bound. Pure: the caller passes time and latencies. Thread
// safety: one thread.
#pragma once

#include <cstdint>

namespace cube::prefetch {

struct FlightBoundOptions {
  unsigned most = 64;
  double tolerance = 1.1;  // multiple of the latency with few in flight
  std::uint64_t period_ns = 20'000'000, longest_period_ns = 500'000'000;
  unsigned fetches_of_period = 16;
  std::uint64_t hold_ns = 500'000'000;  // how long the bound lasts after the program was last seen
  std::uint64_t anew_ns = 10'000'000'000;  // between measurements with one in flight
};

class FlightBound {
 public:
  explicit FlightBound(const FlightBoundOptions& options = {})
      : options_(options), bound_(options.most) {}

  // This many fetches have ended since the last call and took this long in total. Call at every
  // tick.
  void fetches_took(std::uint64_t ns, std::uint64_t fetches);
  void tick(std::uint64_t now_ns, unsigned in_flight, bool demand_waits);

  unsigned bound() const { return bound_; }

 private:
  void measure_anew(std::uint64_t now_ns);
  void begin_period(std::uint64_t now_ns);
  // Waits until the excess fetches have ended.
  void drain(std::uint64_t now_ns, unsigned in_flight);
  void end_period();

  const FlightBoundOptions options_;
  unsigned bound_, most_in_flight_ = 0;
  // is_draining_: more fetches are in flight than allowed, so their latency says nothing about the
  // bound.
  bool is_on_ = false, is_draining_ = false, was_set_back_ = false;
  std::uint64_t waited_ns_ = 0, measured_ns_ = 0, period_began_ns_ = 0;  // points in time
  double sum_ns_ = 0, least_ns_ = 0;
  std::uint64_t fetches_ = 0;
};

}  // namespace cube::prefetch
