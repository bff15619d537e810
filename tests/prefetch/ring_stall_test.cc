#include "prefetch/pace/ring_stall.h"

#include <gtest/gtest.h>

namespace cube::prefetch {
namespace {

TEST(RingStall, IsTheTimeInWhichNobodyReadsFromItWhileProgramsFetch) {
  RingStall stall;
  EXPECT_EQ(stall.tick(100, true, false, 7), 0U);
  EXPECT_EQ(stall.tick(300, true, false, 7), 0U)
      << "programs fetch nothing: they may not read at all";
  EXPECT_EQ(stall.tick(400, true, false, 8), 300U);
  EXPECT_EQ(stall.tick(500, true, false, 8), 400U);
}

// A loaded machine may take longer for a segment than the leader waits, and what is given up must
// be fetched again.
TEST(RingStall, BeginsAnewWithEachFileThatIsReadFromIt) {
  RingStall stall;
  stall.tick(100, true, false, 7);
  EXPECT_EQ(stall.tick(400, true, true, 9), 0U);
  EXPECT_EQ(stall.tick(500, true, false, 9), 0U);
  EXPECT_EQ(stall.tick(600, true, false, 10), 200U);
}

TEST(RingStall, EndsWhereThereIsRoom) {
  RingStall stall;
  stall.tick(100, true, false, 7);
  EXPECT_EQ(stall.tick(200, false, false, 9), 0U);
  EXPECT_EQ(stall.tick(300, true, false, 10), 0U);
  EXPECT_EQ(stall.tick(400, true, false, 11), 100U);
  stall.end();
  EXPECT_EQ(stall.tick(500, true, false, 12), 0U);
}

}  // namespace
}  // namespace cube::prefetch
