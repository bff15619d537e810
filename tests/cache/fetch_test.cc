// What is cached of a file whose times lie where, and what is looked at twice. The stats are made up: a file that a test has
// just made always has a recent ctime.
#include "cache/fetch.h"

#include <gtest/gtest.h>

#include "cache/base/clock.h"
#include "cache/recent_change.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

using base::ConsistencyKind;

struct FetchTest : testing::Test {
  tests::TestRegion region;
  RamTier tier{*region};
  std::int64_t now = static_cast<std::int64_t>(base::wall_ns() / 1'000'000'000ULL);
  static constexpr std::int64_t k_year = 365 * 24 * 3600;
  static constexpr std::uint32_t k_fine = 123'456'789;

  FileStat stat_of(std::uint64_t size, std::int64_t modified_ago, std::int64_t changed_ago,
                   std::uint32_t changed_ns = k_fine) const {
    FileStat stat = tests::stat_for("/mnt/data/f", size);
    stat.modified = {now - modified_ago, 0, 0};
    stat.changed = {now - changed_ago, changed_ns, 0};
    return stat;
  }
  Fetch::Next accept(const FileStat& stat, ConsistencyKind kind = ConsistencyKind::immutable, bool* looks_again = nullptr) {
    Fetch fetch(tier, {.max_file = 1 << 20, .consistency = kind}, "/mnt/data/f");
    const Fetch::Next next = fetch.accept(stat, true);
    if (looks_again != nullptr) *looks_again = fetch.wants_second_look();
    return next;
  }
  bool looks_again(const FileStat& stat) {
    bool result = false;
    EXPECT_EQ(accept(stat, ConsistencyKind::immutable, &result), Fetch::Next::read);
    return result;
  }
};

TEST_F(FetchTest, WhatSeveralRequestsBringIsLookedAtTwiceHoweverOldItIs) {
  EXPECT_FALSE(looks_again(stat_of(128 << 10, k_year, k_year)));
  EXPECT_TRUE(looks_again(stat_of((128 << 10) + 1, k_year, k_year)));
}

TEST_F(FetchTest, WhatHasEitherTimeWithinAMinuteIsLookedAtTwice) {
  EXPECT_FALSE(looks_again(stat_of(100, k_year, k_year)));
  EXPECT_FALSE(looks_again(stat_of(100, 100, 100)));
  EXPECT_TRUE(looks_again(stat_of(100, k_year, 30))) << "an old mtime and a recent ctime";
  EXPECT_TRUE(looks_again(stat_of(100, 30, k_year)));
  EXPECT_TRUE(looks_again(stat_of(100, -30, k_year))) << "of a clock that runs ahead";
  EXPECT_FALSE(looks_again(stat_of(100, -k_year, k_year))) << "of the far future";
}

TEST_F(FetchTest, WhatMayChangeAgainWithinAStepOfACoarseClockIsNotCached) {
  constexpr ConsistencyKind k_kinds[] = {ConsistencyKind::immutable, ConsistencyKind::ttl, ConsistencyKind::open};
  for (const auto kind : k_kinds) {
    // Whole seconds, and whole milliseconds.
    for (const std::uint32_t ns : {0U, 250'000'000U, 999'000'000U}) {
      EXPECT_EQ(accept(stat_of(100, k_year, 0, ns), kind), Fetch::Next::refuse) << ns;
      EXPECT_EQ(accept(stat_of(100, k_year, -3, ns), kind), Fetch::Next::refuse) << "of a clock that runs ahead";
      EXPECT_EQ(accept(stat_of(100, k_year, 10, ns), kind), Fetch::Next::read);
    }
    // A fine clock tells of the change: data sets that were just unpacked are cached.
    EXPECT_EQ(accept(stat_of(100, k_year, 0), kind), Fetch::Next::read);
  }
}

TEST_F(FetchTest, WhatWasJustWrittenIsNotCachedWhereChangesAreExpected) {
  EXPECT_EQ(accept(stat_of(100, 0, 0), ConsistencyKind::immutable), Fetch::Next::read);
  EXPECT_EQ(accept(stat_of(100, 0, 0), ConsistencyKind::ttl), Fetch::Next::refuse);
  EXPECT_EQ(accept(stat_of(100, 0, 0), ConsistencyKind::open), Fetch::Next::refuse);
}

}  // namespace
}  // namespace cube::cache
