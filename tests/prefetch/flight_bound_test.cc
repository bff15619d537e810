// The bound on a simulated origin, which serves a fixed number of requests at a time and makes the
// others wait.
#include "prefetch/pace/flight_bound.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace cube::prefetch {
namespace {

constexpr std::uint64_t k_ms = 1'000'000;

struct FlightBoundTest : ::testing::Test {
  FlightBound bound{{.most = 64}};
  std::uint64_t now = k_ms;
  double service_ms = 2;
  unsigned servers = 4;

  double latency_ms(unsigned in_flight) const {
    return service_ms * std::max(1.0, static_cast<double>(in_flight) / servers);
  }
  // Ticks of 10 ms, with as many fetches in flight as allowed.
  void run(int ticks, bool demand_waits) {
    for (; ticks > 0; --ticks) {
      now += 10 * k_ms;
      const unsigned in_flight = bound.bound();
      const double each = latency_ms(in_flight);
      const auto ended = static_cast<std::uint64_t>(std::max(1.0, in_flight * 10 / each));
      bound.fetches_took(static_cast<std::uint64_t>(static_cast<double>(ended) * each * k_ms),
                         ended);
      bound.tick(now, in_flight, demand_waits);
    }
  }
};

TEST_F(FlightBoundTest, DoesNotBindWhileNobodyWaits) {
  run(100, false);
  EXPECT_EQ(bound.bound(), 64U);
}

TEST_F(FlightBoundTest, BeginsWithOneAndSettlesWhereTheOriginHasNoQueue) {
  run(1, true);
  EXPECT_EQ(bound.bound(), 1U);
  unsigned least = 64, most = 0;
  run(50, true);
  for (int i = 0; i < 200; ++i) {
    run(1, true);
    least = std::min(least, bound.bound());
    most = std::max(most, bound.bound());
  }
  EXPECT_GE(least, servers - 1);
  EXPECT_LE(most, servers + 2) << "one more than the tolerance is a trial";
}

// Each fetch above what the origin serves is a delay that the program notices.
TEST_F(FlightBoundTest, HardlyOvershootsOnItsWayUp) {
  servers = 10;
  unsigned most = 0;
  for (int i = 0; i < 200; ++i) {
    run(1, true);
    most = std::max(most, bound.bound());
  }
  EXPECT_GE(most, servers);
  EXPECT_LE(most, servers + servers / 3);
}

TEST_F(FlightBoundTest, ComesToTheMostWhereAnOriginIsFarAndHasNoQueue) {
  service_ms = 40;
  servers = 1000;
  run(200, true);
  EXPECT_EQ(bound.bound(), 64U);
}

TEST_F(FlightBoundTest, EndsAWhileAfterTheLastWait) {
  run(100, true);
  run(20, false);
  EXPECT_LT(bound.bound(), 64U) << "a program that pauses between its files is still there";
  run(40, false);
  EXPECT_EQ(bound.bound(), 64U);
}

TEST_F(FlightBoundTest, MeasuresAgainAnOriginThatHasBecomeSlower) {
  run(100, true);
  service_ms = 8;
  run(50, true);
  EXPECT_LE(bound.bound(), 2U) << "it looks like a queue";
  EXPECT_GE(bound.bound(), 1U) << "nothing would be fetched";
  run(1000, true);
  run(100, true);
  EXPECT_GE(bound.bound(), servers - 1);
}

// Fetches that were in flight before say nothing about the latency without a queue.
TEST_F(FlightBoundTest, MeasuresWhenNoMoreThanTheBoundAreInFlight) {
  for (unsigned left : {64U, 30U, 2U}) {
    now += 10 * k_ms;
    bound.fetches_took(30 * 20 * k_ms, 30);
    bound.tick(now, left, true);
    EXPECT_EQ(bound.bound(), 1U);
  }
  run(60, true);
  EXPECT_LE(bound.bound(), servers + 2);
}

TEST_F(FlightBoundTest, DoesNotBindWhatItCannotMeasure) {
  for (int i = 0; i < 60; ++i) {
    now += 10 * k_ms;
    bound.tick(now, 1, true);
  }
  EXPECT_EQ(bound.bound(), 64U);
}

// Large files that take minutes, or fetches that hang, are in flight for longer than the program
// waits.
TEST_F(FlightBoundTest, DoesNotBindForFetchesThatDoNotEnd) {
  for (int i = 0; i < 30; ++i) {
    now += 10 * k_ms;
    bound.tick(now, 8, true);
    EXPECT_EQ(bound.bound(), 1U);
  }
  for (int i = 0; i < 30; ++i) {
    now += 10 * k_ms;
    bound.tick(now, 8, true);
  }
  EXPECT_EQ(bound.bound(), 64U);
  // Small files go on beside them, except during half a second of each measurement.
  int bound_ticks = 0;
  for (int i = 0; i < 3000; ++i) {
    now += 10 * k_ms;
    const unsigned small = bound.bound() - std::min(bound.bound(), 8U);
    bound.fetches_took(small * 2 * k_ms, small);
    bound.tick(now, 8 + small, true);
    bound_ticks += bound.bound() <= 8 ? 1 : 0;
  }
  EXPECT_LE(bound_ticks, 3 * 60);
}

}  // namespace
}  // namespace cube::prefetch
