#include "prefetch/pace/depth_control.h"

#include <gtest/gtest.h>

namespace cube::prefetch {
namespace {

constexpr std::uint64_t k_period = 20'000'000;

struct DepthControlTest : ::testing::Test {
  DepthControl control{{.most = 32}};
  std::uint64_t now = 1;

  // Periods in which demand has this latency and the depth is used.
  void periods(int n, std::uint64_t latency_ns, bool used = true) {
    for (; n > 0; --n) {
      if (latency_ns != 0) control.demand_took(latency_ns);
      control.tick(now, used ? 1000 : 0);
      now += k_period;
    }
  }
};

TEST_F(DepthControlTest, DoublesUntilTheFirstSetBackAndThenGrowsByOne) {
  periods(1, 300'000);
  const unsigned before = control.depth();
  periods(1, 300'000);
  EXPECT_EQ(control.depth(), 2 * before);
  periods(1, 600'000);
  EXPECT_EQ(control.depth(), before);
  periods(5, 300'000);
  EXPECT_EQ(control.depth(), before + 5);
  periods(100, 300'000);
  EXPECT_EQ(control.depth(), 32U);
}

TEST_F(DepthControlTest, StaysForAJobThatWaitsMostOfTheTime) {
  periods(100, 300'000);
  for (int i = 0; i < 100; ++i) control.demand_waits(1);
  EXPECT_EQ(control.depth(), 32U);
  // The latency counts as before.
  periods(1, 900'000);
  EXPECT_EQ(control.depth(), 16U);
  // Once the prefetch is ahead again, a program that waits has the origin to itself.
  for (int i = 0; i < 400; ++i) control.demand_waits(0);
  control.demand_waits(1);
  EXPECT_EQ(control.depth(), 1U);
}

TEST_F(DepthControlTest, GrowsWithoutDemand) {
  periods(100, 0);
  EXPECT_EQ(control.depth(), 32U);
}

TEST_F(DepthControlTest, DoesNotGrowUnused) {
  const unsigned before = control.depth();
  periods(100, 300'000, false);
  EXPECT_EQ(control.depth(), before);
  periods(2, 300'000);
  EXPECT_GT(control.depth(), before);
}

TEST_F(DepthControlTest, HalvesWhenDemandGetsSlow) {
  periods(100, 300'000);
  periods(1, 500'000);
  EXPECT_EQ(control.depth(), 16U);
  periods(10, 700'000);
  EXPECT_EQ(control.depth(), 1U);
  periods(5, 300'000);
  EXPECT_EQ(control.depth(), 6U);
}

TEST_F(DepthControlTest, ALittleSlowerIsNoReason) {
  periods(100, 300'000);
  periods(10, 400'000);
  EXPECT_EQ(control.depth(), 32U);
}

TEST_F(DepthControlTest, AnOriginThatHasBecomeSlowForGoodIsGotUsedTo) {
  periods(100, 300'000);
  periods(200, 600'000);
  EXPECT_GT(control.depth(), 16U);
}

TEST_F(DepthControlTest, IsOneWhileDemandWaits) {
  periods(100, 300'000);
  control.demand_waits(2);
  EXPECT_EQ(control.depth(), 1U);
  control.demand_waits(0);
  EXPECT_EQ(control.depth(), 32U);
}

TEST_F(DepthControlTest, ChangesOncePerPeriod) {
  periods(2, 300'000);
  const unsigned before = control.depth();
  for (int i = 0; i < 100; ++i) control.tick(now - k_period + 1, 1000);
  EXPECT_EQ(control.depth(), before);
}

TEST_F(DepthControlTest, AClockThatWasSetBackDoesNotStopIt) {
  periods(2, 300'000);
  periods(1, 600'000);
  const unsigned before = control.depth();
  now = 1;
  periods(3, 300'000);
  EXPECT_GE(control.depth(), before + 3);
}

}  // namespace
}  // namespace cube::prefetch
