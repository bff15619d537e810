// How many fetches may be in flight: by the latency of programs, by the latency of fetches on a
// simulated origin, and to which jobs the second limit applies.
#include "prefetch/pace/depth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace cube::prefetch {
namespace {

constexpr std::uint64_t k_ms = 1'000'000, k_period = 20 * k_ms;

// The job works through its list, so that its demand is not foreign.
struct DepthByDemandTest : ::testing::Test {
  Depth depth{32};
  cache::Demand job{.job = 5};
  std::uint64_t now = 5000 * k_ms;

  void tick(unsigned in_flight) {
    depth.tick(
        {.now_ns = now, .in_flight = in_flight, .jobs = std::span(&job, 1), .planned_job = 5});
  }
  // Periods in which demand has this latency and the depth is used.
  void periods(int n, std::uint64_t latency_ns, bool used = true) {
    for (; n > 0; --n) {
      job.fetches += latency_ns != 0 ? 1 : 0;
      job.ns += latency_ns;
      tick(used ? 1000 : 0);
      now += k_period;
    }
  }
  void wait(int ticks, unsigned operations) {
    job.waiting = operations;
    for (; ticks > 0; --ticks) tick(0);
    now += k_period;
  }
};

TEST_F(DepthByDemandTest, DoublesUntilTheFirstSetBackAndThenGrowsByOne) {
  periods(1, 300'000);
  const unsigned before = depth.depth();
  periods(1, 300'000);
  EXPECT_EQ(depth.depth(), 2 * before);
  periods(1, 600'000);
  EXPECT_EQ(depth.depth(), before);
  periods(5, 300'000);
  EXPECT_EQ(depth.depth(), before + 5);
  periods(100, 300'000);
  EXPECT_EQ(depth.depth(), 32U);
}

TEST_F(DepthByDemandTest, StaysForAJobThatWaitsMostOfTheTime) {
  periods(100, 300'000);
  wait(100, 1);
  EXPECT_EQ(depth.depth(), 32U);
  // The latency has the same effect as before.
  periods(1, 900'000);
  EXPECT_EQ(depth.depth(), 16U);
  // When the prefetch is ahead again, a waiting program has the origin to itself.
  wait(400, 0);
  wait(1, 1);
  EXPECT_EQ(depth.depth(), 1U);
}

TEST_F(DepthByDemandTest, GrowsWithoutDemand) {
  periods(100, 0);
  EXPECT_EQ(depth.depth(), 32U);
}

TEST_F(DepthByDemandTest, DoesNotGrowUnused) {
  const unsigned before = depth.depth();
  periods(100, 300'000, false);
  EXPECT_EQ(depth.depth(), before);
  periods(2, 300'000);
  EXPECT_GT(depth.depth(), before);
}

TEST_F(DepthByDemandTest, HalvesWhenDemandGetsSlow) {
  periods(100, 300'000);
  periods(1, 500'000);
  EXPECT_EQ(depth.depth(), 16U);
  periods(10, 700'000);
  EXPECT_EQ(depth.depth(), 1U);
  periods(5, 300'000);
  EXPECT_EQ(depth.depth(), 6U);
}

TEST_F(DepthByDemandTest, StaysIfDemandIsALittleSlower) {
  periods(100, 300'000);
  periods(10, 400'000);
  EXPECT_EQ(depth.depth(), 32U);
}

TEST_F(DepthByDemandTest, AdaptsToAnOriginThatStaysSlow) {
  periods(100, 300'000);
  periods(200, 600'000);
  EXPECT_GT(depth.depth(), 16U);
}

TEST_F(DepthByDemandTest, IsOneWhileDemandWaits) {
  periods(100, 300'000);
  wait(1, 2);
  EXPECT_EQ(depth.depth(), 1U);
  wait(1, 0);
  EXPECT_EQ(depth.depth(), 32U);
}

TEST_F(DepthByDemandTest, ChangesOncePerPeriod) {
  periods(2, 300'000);
  const unsigned before = depth.depth();
  now -= k_period - 1;
  for (int i = 0; i < 100; ++i) tick(1000);
  EXPECT_EQ(depth.depth(), before);
}

TEST_F(DepthByDemandTest, AClockThatWasSetBackDoesNotStopIt) {
  periods(2, 300'000);
  periods(1, 600'000);
  const unsigned before = depth.depth();
  now = 1000 * k_ms;
  periods(3, 300'000);
  EXPECT_GE(depth.depth(), before + 3);
}

// The origin serves a fixed number of requests at a time and makes the others wait.
struct DepthByFetchesTest : ::testing::Test {
  Depth depth{64};
  cache::Demand job{.job = 3};
  std::uint64_t now = 1000 * k_ms;
  double service_ms = 2;
  unsigned servers = 4;

  DepthByFetchesTest() { run(10, false); }

  double latency_ms(unsigned in_flight) const {
    return service_ms * std::max(1.0, static_cast<double>(in_flight) / servers);
  }
  // If `is_foreign` is false, the job has not begun or is over.
  void tick(unsigned in_flight, bool is_foreign, std::uint64_t fetches = 0, std::uint64_t ns = 0) {
    now += 10 * k_ms;
    job.fetches += is_foreign ? 1 : 0;
    const std::span rows(&job, is_foreign || job.fetches == 0 ? 1 : 0);
    depth.tick({.now_ns = now, .in_flight = in_flight, .jobs = rows, .fetches = fetches, .ns = ns});
  }
  // Ticks of 10 ms, with as many fetches in flight as allowed.
  void run(int ticks, bool is_foreign) {
    for (; ticks > 0; --ticks) {
      const unsigned in_flight = depth.depth();
      const double each = latency_ms(in_flight);
      const auto ended = static_cast<std::uint64_t>(std::max(1.0, in_flight * 10 / each));
      tick(in_flight, is_foreign, ended,
           static_cast<std::uint64_t>(static_cast<double>(ended) * each * k_ms));
    }
  }
};

TEST_F(DepthByFetchesTest, DoesNotLimitWithoutForeignDemand) {
  run(100, false);
  EXPECT_EQ(depth.depth(), 64U);
}

TEST_F(DepthByFetchesTest, StartsAtOneAndSettlesWithoutAQueueAtTheOrigin) {
  run(1, true);
  EXPECT_EQ(depth.depth(), 1U);
  unsigned least = 64, most = 0;
  run(50, true);
  for (int i = 0; i < 200; ++i) {
    run(1, true);
    least = std::min(least, depth.depth());
    most = std::max(most, depth.depth());
  }
  EXPECT_GE(least, servers - 1);
  EXPECT_LE(most, servers + 2) << "one more than the tolerance is a trial";
}

// Each fetch beyond the origin's capacity causes a delay that the program notices.
TEST_F(DepthByFetchesTest, HardlyOvershootsOnItsWayUp) {
  servers = 10;
  unsigned most = 0;
  for (int i = 0; i < 200; ++i) {
    run(1, true);
    most = std::max(most, depth.depth());
  }
  EXPECT_GE(most, servers);
  EXPECT_LE(most, servers + servers / 3);
}

TEST_F(DepthByFetchesTest, ReachesTheMaximumForADistantOriginWithoutAQueue) {
  service_ms = 40;
  servers = 1000;
  run(200, true);
  EXPECT_EQ(depth.depth(), 64U);
}

TEST_F(DepthByFetchesTest, EndsAWhileAfterTheLastForeignFetch) {
  run(100, true);
  run(20, false);
  EXPECT_LT(depth.depth(), 64U) << "a program that pauses between its files is still there";
  run(40, false);
  EXPECT_EQ(depth.depth(), 64U);
}

TEST_F(DepthByFetchesTest, MeasuresAgainAnOriginThatHasBecomeSlower) {
  run(100, true);
  service_ms = 8;
  run(50, true);
  EXPECT_LE(depth.depth(), 2U) << "it looks like a queue";
  EXPECT_GE(depth.depth(), 1U) << "nothing would be fetched";
  run(1000, true);
  run(100, true);
  EXPECT_GE(depth.depth(), servers - 1);
}

// Fetches that were already in flight had to queue, so they do not show the latency of an idle
// origin.
TEST_F(DepthByFetchesTest, MeasuresWhenNoMoreThanTheLimitAreInFlight) {
  for (unsigned left : {64U, 30U, 2U}) {
    tick(left, true, 30, 30 * 20 * k_ms);
    EXPECT_EQ(depth.depth(), 1U);
  }
  run(60, true);
  EXPECT_LE(depth.depth(), servers + 2);
}

TEST_F(DepthByFetchesTest, DoesNotLimitFetchesThatItCannotMeasure) {
  for (int i = 0; i < 60; ++i) tick(1, true);
  EXPECT_EQ(depth.depth(), 64U);
}

// Large files that take minutes, or fetches that hang, are in flight for longer than the program
// waits.
TEST_F(DepthByFetchesTest, DoesNotLimitIfFetchesDoNotEnd) {
  for (int i = 0; i < 30; ++i) {
    tick(8, true);
    EXPECT_EQ(depth.depth(), 1U);
  }
  for (int i = 0; i < 30; ++i) tick(8, true);
  EXPECT_EQ(depth.depth(), 64U);
  // Fetches of small files continue in parallel, except for half a second during each measurement.
  int bound_ticks = 0;
  for (int i = 0; i < 3000; ++i) {
    const unsigned small = depth.depth() - std::min(depth.depth(), 8U);
    tick(8 + small, true, small, small * 2 * k_ms);
    bound_ticks += depth.depth() <= 8 ? 1 : 0;
  }
  EXPECT_LE(bound_ticks, 3 * 60);
}

// Foreign demand first sets the depth to one, so that the latency can be measured.
struct ForeignDemandTest : ::testing::Test {
  Depth depth{64};
  std::array<cache::Demand, 2> jobs{{{.job = 3}, {.job = 8}}};
  std::optional<std::uint32_t> planned_job;
  std::uint64_t now = 1000 * k_ms, overtaken = 0;

  ForeignDemandTest() { ticks(10, 0, 0); }
  bool is_there() const { return depth.depth() == 1; }
  // Ticks in which the first job fetches and opens this many files.
  void ticks(int n, unsigned fetches, unsigned ahead, unsigned by_plan = 0) {
    for (; n > 0; --n) {
      now += 10 * k_ms;
      jobs[0].fetches += fetches;
      jobs[0].ahead += ahead;
      overtaken += by_plan;
      depth.tick({.now_ns = now,
                  .in_flight = 64,
                  .jobs = jobs,
                  .planned_job = planned_job,
                  .overtaken = overtaken,
                  .fetches = 1,
                  .ns = k_ms});
    }
  }
};

TEST_F(ForeignDemandTest, IsSeenWhileAJobFetchesUnplannedFiles) {
  ticks(1, 0, 0);
  EXPECT_FALSE(is_there());
  ticks(1, 1, 0);
  EXPECT_TRUE(is_there());
  ticks(100, 0, 0);
  EXPECT_FALSE(is_there()) << "it is long ago";
}

TEST_F(ForeignDemandTest, IgnoresAJobWhoseFilesAreFetchedAhead) {
  ticks(100, 4, 1);
  EXPECT_FALSE(is_there());
  ticks(100, 16, 1);
  EXPECT_TRUE(is_there()) << "few of its files are";
}

TEST_F(ForeignDemandTest, IgnoresAJobThatHasOutrunThePrefetcher) {
  ticks(100, 4, 0, 4);
  EXPECT_FALSE(is_there());
  ticks(100, 4, 0, 1);
  EXPECT_TRUE(is_there()) << "most of its files are of no plan";
}

TEST_F(ForeignDemandTest, IgnoresAJobWithAList) {
  planned_job = jobs[0].job;
  ticks(100, 4, 0);
  EXPECT_FALSE(is_there());
}

TEST_F(ForeignDemandTest, IsSeenBesideAJobWhoseFilesAreFetchedAhead) {
  for (int i = 0; i < 100; ++i) {
    jobs[1].fetches += 1;
    jobs[1].ahead += 10;
    ticks(1, 1, 0);
  }
  EXPECT_TRUE(is_there());
}

TEST_F(ForeignDemandTest, IgnoresEarlierFetchesOfAnOlderJob) {
  jobs[0] = {.job = 4, .fetches = 1'000'000};
  ticks(1, 0, 0);
  EXPECT_FALSE(is_there());
  // The processes of the job end, and another one begins.
  jobs[0].fetches = 0;
  ticks(1, 0, 0);
  EXPECT_FALSE(is_there());
  ticks(1, 1, 0);
  EXPECT_TRUE(is_there());
}

}  // namespace
}  // namespace cube::prefetch
