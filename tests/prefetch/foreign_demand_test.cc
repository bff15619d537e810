#include "prefetch/pace/foreign_demand.h"

#include <gtest/gtest.h>

#include <vector>

namespace cube::prefetch {
namespace {

struct ForeignDemandTest : ::testing::Test {
  ForeignDemand foreign;
  std::vector<ForeignDemand::Job> jobs{{.number = 3}, {.number = 8}};
  std::uint64_t overtaken = 0;
  bool is_there = false;

  // Ticks in which the first job fetches and opens this many files.
  void ticks(int n, unsigned fetches, unsigned ahead, unsigned by_plan = 0) {
    for (; n > 0; --n) {
      jobs[0].fetches += fetches;
      jobs[0].ahead += ahead;
      overtaken += by_plan;
      is_there = foreign.is_there(jobs, overtaken);
    }
  }
};

TEST_F(ForeignDemandTest, IsThereWhileAJobFetchesWhatNobodyHasTold) {
  ticks(1, 0, 0);
  EXPECT_FALSE(is_there);
  ticks(1, 1, 0);
  EXPECT_TRUE(is_there);
  ticks(100, 0, 0);
  EXPECT_FALSE(is_there) << "it is long ago";
}

TEST_F(ForeignDemandTest, IsNotThatOfAJobWhoseFilesAreFetchedAhead) {
  ticks(100, 4, 1);
  EXPECT_FALSE(is_there);
  ticks(100, 16, 1);
  EXPECT_TRUE(is_there) << "few of its files are";
}

TEST_F(ForeignDemandTest, IsNotThatOfAJobThatHasOutrunThePrefetcher) {
  ticks(100, 4, 0, 4);
  EXPECT_FALSE(is_there);
  ticks(100, 4, 0, 1);
  EXPECT_TRUE(is_there) << "most of its files are of no plan";
}

TEST_F(ForeignDemandTest, IsNotThatOfAJobWithAList) {
  jobs[0].is_planned = true;
  ticks(100, 4, 0);
  EXPECT_FALSE(is_there);
}

TEST_F(ForeignDemandTest, IsSeenBesideAJobWhoseFilesAreFetchedAhead) {
  for (int i = 0; i < 100; ++i) {
    jobs[1].fetches += 1;
    jobs[1].ahead += 10;
    ticks(1, 1, 0);
  }
  EXPECT_TRUE(is_there);
}

TEST_F(ForeignDemandTest, AJobThatWasThereBeforeIsNotCountedFromItsBegin) {
  jobs[0].fetches = 1'000'000;
  ticks(1, 0, 0);
  EXPECT_FALSE(is_there);
  // Its processes end, and another one of the job begins.
  jobs[0].fetches = 0;
  ticks(1, 0, 0);
  EXPECT_FALSE(is_there);
  ticks(1, 1, 0);
  EXPECT_TRUE(is_there);
}

}  // namespace
}  // namespace cube::prefetch
