// How many fetches may be in flight while a program waits for files that nobody has told of
// (foreign_demand.h): so many that they do not queue at the origin, because the program's own
// request would stand behind them.
//
// A queue shows in the latency of the fetches. It is measured with one in flight first. Then more
// are let through each period, twice as many first and a quarter more later, as long as a fetch
// takes hardly longer than that. When it does, the number falls by as much, and grows by one each
// period afterwards. From time to time it is all measured anew: an origin's own speed changes, and
// so do the sizes of files.
//
// Without such a program there is no bound.
// Pure: time and latencies are told to it. Thread safety: one thread.
#pragma once

#include <cstdint>

namespace cube::prefetch {

struct FlightBoundOptions {
  unsigned most = 64;
  double tolerance = 1.1;  // times the latency of few in flight
  std::uint64_t period_ns = 20'000'000, longest_period_ns = 500'000'000;
  unsigned fetches_of_period = 16;
  std::uint64_t hold_ns = 500'000'000;     // after the program was seen last
  std::uint64_t anew_ns = 10'000'000'000;  // between measurements with one in flight
};

class FlightBound {
 public:
  explicit FlightBound(const FlightBoundOptions& options = {})
      : options_(options), bound_(options.most) {}

  // So many fetches have ended since the last call, which took so long altogether. Told at every
  // tick.
  void fetches_took(std::uint64_t ns, std::uint64_t fetches);
  void tick(std::uint64_t now_ns, unsigned in_flight, bool demand_waits);

  unsigned bound() const { return bound_; }

 private:
  void measure_anew(std::uint64_t now_ns);
  void begin_period(std::uint64_t now_ns);
  // Lets as many end as are too many.
  void drain(std::uint64_t now_ns, unsigned in_flight);
  void end_period();

  const FlightBoundOptions options_;
  unsigned bound_, most_in_flight_ = 0;
  // is_draining_: more are in flight than may be, whose latency says nothing of the bound.
  bool is_on_ = false, is_draining_ = false, was_set_back_ = false;
  std::uint64_t waited_ns_ = 0, measured_ns_ = 0, period_began_ns_ = 0;  // when
  double sum_ns_ = 0, least_ns_ = 0;
  std::uint64_t fetches_ = 0;
};

}  // namespace cube::prefetch
