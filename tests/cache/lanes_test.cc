// Pins and counters are kept separately for each lane. Also tests the lane of a thread.
#include "cache/region/lanes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "cache/region/life/process_slots.h"
#include "cache/report/job_totals.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

using tests::TestRegion;

std::uint32_t own_claims(const TestRegion& region, std::uint32_t segment) {
  return pins_of(*region, region->own_slot(), segment);
}

std::uintptr_t line_of(const void* at) {
  return reinterpret_cast<std::uintptr_t>(at) / base::k_cache_line;
}

TEST(Lanes, PinsBeyondALaneAreCounted) {
  const TestRegion region(64 * tests::k_mib);
  const auto segments = static_cast<std::uint32_t>(2 * LaneRow::k_pins);
  ASSERT_GE(region->layout().segment_count, segments);
  std::vector<std::atomic<std::uint32_t>*> words;
  for (std::uint32_t s = 0; s < segments; ++s) {
    EXPECT_FALSE(is_segment_pinned(*region, s));
    words.push_back(pin_segment(*region, s));
    EXPECT_EQ(own_claims(region, s), 1U);
    EXPECT_TRUE(is_segment_pinned(*region, s));
  }
  std::sort(words.begin(), words.end());
  EXPECT_EQ(std::unique(words.begin(), words.end()), words.end());
  for (auto* const word : words) word->fetch_sub(1);
  EXPECT_EQ(pins_of(*region, region->own_slot()), 0U);
  for (std::uint32_t s = 0; s < segments; ++s) EXPECT_FALSE(is_segment_pinned(*region, s));
}

TEST(Lanes, ManyPinsOnOneSegmentCountForThisSegmentAlone) {
  const TestRegion region;
  constexpr std::uint32_t k_many = 100'000;
  std::vector<std::atomic<std::uint32_t>*> words;
  for (std::uint32_t i = 0; i < k_many; ++i) words.push_back(pin_segment(*region, 2));
  EXPECT_EQ(own_claims(region, 2), k_many);
  EXPECT_EQ(pins_of(*region, region->own_slot()), k_many);
  for (auto* const word : words) word->fetch_sub(1);
  EXPECT_EQ(pins_of(*region, region->own_slot()), 0U);
}

TEST(Lanes, ThreadsShareNoCacheLineAndCanEndEachOthersPins) {
  const TestRegion region;
  std::atomic<std::uint32_t>* const own = pin_segment(*region, 1);
  std::atomic<std::uint32_t>* others = nullptr;
  std::thread([&] { others = pin_segment(*region, 1); }).join();
  EXPECT_NE(line_of(own), line_of(others));
  EXPECT_EQ(own_claims(region, 1), 2U);
  others->fetch_sub(1);
  std::thread([&] { own->fetch_sub(1); }).join();
  EXPECT_FALSE(is_segment_pinned(*region, 1));
}

// There are more threads than lanes.
TEST(Lanes, CountsAndPinsOfAllThreadsAreSummed) {
  const TestRegion region;
  constexpr std::uint32_t k_threads = 3 * base::k_lanes;
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < k_threads; ++t) {
    threads.emplace_back([&, t] {
      count_hit(*region);
      pin_segment(*region, t % 3);
    });
  }
  for (auto& thread : threads) thread.join();
  // This thread has opened nothing itself.
  std::thread([&] { count_served(*region, 1000, 3); }).join();
  const auto of_job = [&] { return collect(*region, region->own_job()).totals; };
  EXPECT_EQ(of_job()[base::Counter::hits_ram], k_threads);
  EXPECT_EQ(of_job()[base::Counter::bytes_served], 1000U);
  EXPECT_EQ(of_job()[base::Counter::calls_saved], 3U);
  EXPECT_EQ(collect_all(*region).totals[base::Counter::hits_ram], k_threads);
  EXPECT_EQ(own_claims(region, 0), k_threads / 3);
  forget_pins_of(*region, region->own_slot());
  EXPECT_EQ(pins_of(*region, region->own_slot()), 0U);
}

}  // namespace
}  // namespace cube::cache
