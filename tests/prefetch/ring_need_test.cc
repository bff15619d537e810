#include "prefetch/pace/ring_need.h"

#include <gtest/gtest.h>

namespace cube::prefetch {
namespace {

struct RingNeedTest : ::testing::Test {
  RingNeed need;
  RingNeed::Seen seen;

  bool tick(unsigned fetched, unsigned overtaken, unsigned demanded, bool is_blocked) {
    seen.fetched += fetched;
    seen.overtaken += overtaken;
    seen.demanded += demanded;
    seen.is_blocked = is_blocked;
    return need.is_too_small(seen);
  }
};

TEST_F(RingNeedTest, IsTooSmallWhereProgramsFetchPlannedFilesWhileItIsFull) {
  EXPECT_FALSE(tick(10, 0, 0, true));
  EXPECT_FALSE(tick(0, 0, 3, true));
  // The prefetcher gets to them when there is room again.
  EXPECT_TRUE(tick(10, 3, 0, false));
  EXPECT_FALSE(tick(10, 0, 0, true)) << "it begins anew";
}

TEST_F(RingNeedTest, IsLargeEnoughWhereTheProgramsOvertookItForAnotherReason) {
  EXPECT_FALSE(tick(0, 0, 40, false));
  EXPECT_FALSE(tick(10, 40, 0, true)) << "at the begin of an epoch the prefetcher is not ahead yet";
  EXPECT_FALSE(tick(20, 0, 0, true));
}

TEST_F(RingNeedTest, IsLargeEnoughWhereProgramsFetchFilesThatNobodyHasTold) {
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(tick(10, 0, 10, true));
}

TEST_F(RingNeedTest, AFewOfManyAreNoReason) {
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(tick(100, 0, 1, true));
    EXPECT_FALSE(tick(50, 1, 1, true));
  }
}

TEST_F(RingNeedTest, FetchesOfLongAgoAreNoReason) {
  tick(0, 0, 0, true);
  EXPECT_FALSE(tick(0, 0, 40, true));
  EXPECT_FALSE(tick(1000, 0, 0, false));
  EXPECT_FALSE(tick(0, 3, 0, false)) << "it was not full then";
}

TEST_F(RingNeedTest, AProcessThatEndsTakesItsCountsWithIt) {
  tick(10, 0, 1000, true);
  seen.demanded = 0;
  EXPECT_FALSE(tick(10, 3, 0, true));
  EXPECT_FALSE(tick(10, 3, 2, true));
}

}  // namespace
}  // namespace cube::prefetch
