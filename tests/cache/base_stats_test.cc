// Counters, the histogram's buckets and its quantiles.
#include "cache/base/settings/stats.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string_view>

namespace cube::base {
namespace {

TEST(Histogram, EveryDurationLiesBelowItsBucketsBound) {
  std::size_t last = 0;
  for (std::uint64_t ns = 0; ns < 1'000'000; ns += 1 + ns / 97) {
    const std::size_t bucket = Histogram::bucket_of(ns);
    ASSERT_LT(bucket, Histogram::k_buckets);
    ASSERT_GE(bucket, last) << ns;
    ASSERT_LT(ns, Histogram::upper_bound_of(bucket)) << ns;
    if (bucket > 0) {
      ASSERT_GE(ns, Histogram::upper_bound_of(bucket - 1)) << ns;
    }
    last = bucket;
  }
}

TEST(Histogram, BoundsAreWithinAQuarterOfTheDuration) {
  for (std::size_t b = 4; b + 1 < Histogram::k_buckets; ++b) {
    const double below = static_cast<double>(Histogram::upper_bound_of(b)),
                 above = static_cast<double>(Histogram::upper_bound_of(b + 1));
    EXPECT_LE(above / below, 1.26) << b;
    EXPECT_GT(above, below);
  }
}

TEST(Histogram, PutsTooLongTimesIntoTheLastBucket) {
  EXPECT_EQ(Histogram::bucket_of(UINT64_MAX), Histogram::k_buckets - 1);
  EXPECT_EQ(Histogram::bucket_of(1ULL << 62), Histogram::k_buckets - 1);
}

TEST(Quantile, IsZeroWithoutEntries) { EXPECT_EQ(quantile_ns({}, 0.5), 0U); }

TEST(Quantile, FindsMedianAndTail) {
  const auto stats = std::make_unique<Stats>();
  for (int i = 0; i < 98; ++i) stats->hit_latency.add(1000);
  stats->hit_latency.add(1'000'000);
  stats->hit_latency.add(1'000'000);
  Totals totals;
  totals.add(*stats);
  const auto near = [](std::uint64_t value, std::uint64_t wanted) {
    return value > wanted && value <= wanted * 5 / 4 + 1;
  };
  EXPECT_TRUE(near(quantile_ns(totals.hit_latency, 0.0), 1000));
  EXPECT_TRUE(near(quantile_ns(totals.hit_latency, 0.5), 1000));
  EXPECT_TRUE(near(quantile_ns(totals.hit_latency, 0.97), 1000));
  EXPECT_TRUE(near(quantile_ns(totals.hit_latency, 0.99), 1'000'000));
  EXPECT_TRUE(near(quantile_ns(totals.hit_latency, 1.0), 1'000'000));
  EXPECT_EQ(quantile_ns(totals.miss_latency, 0.5), 0U);
}

TEST(Quantile, IsTheEntryWhenThereIsOnlyOne) {
  std::array<std::uint64_t, Histogram::k_buckets> counts{};
  counts[Histogram::bucket_of(500)] = 1;
  for (const double q : {0.0, 0.5, 0.99, 1.0})
    EXPECT_EQ(quantile_ns(counts, q), Histogram::upper_bound_of(Histogram::bucket_of(500)));
}

TEST(Totals, AreTheSumOverProcesses) {
  const auto a = std::make_unique<Stats>();
  const auto b = std::make_unique<Stats>();
  a->count(Counter::hits_ram, 5);
  b->count(Counter::hits_ram);
  b->count(Counter::stale_marked, 1ULL << 40);
  a->miss_latency.add(7);
  b->miss_latency.add(7);
  Totals totals;
  totals.add(*a);
  totals.add(*b);
  EXPECT_EQ(totals[Counter::hits_ram], 6U);
  EXPECT_EQ(totals[Counter::stale_marked], 1ULL << 40);
  EXPECT_EQ(totals[Counter::misses], 0U);
  EXPECT_EQ(totals.miss_latency[Histogram::bucket_of(7)], 2U);
}

TEST(Counters, HaveDistinctNames) {
  const std::string_view names[] = {
#define CUBE_COUNTER(name, place, unit, help) #name,
#include "cache/base/settings/stats.def"
  };
  EXPECT_EQ(std::set<std::string_view>(std::begin(names), std::end(names)).size(), k_counters);
}

}  // namespace
}  // namespace cube::base
