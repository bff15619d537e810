// Whether the ring has room for one more fetch, after one that found none.
#include "prefetch/pace/ring_credit.h"

#include <gtest/gtest.h>

#include "cache/base/clock.h"
#include "tests/support/test_region.h"

namespace cube::prefetch {
namespace {

using tests::k_mib;

struct RingCreditTest : ::testing::Test {
  static constexpr std::uint64_t k_bytes = 60'000, k_average = 64 << 10;
  tests::TestCache cache{32 * k_mib};
  RingCredit credit{cache->ahead()};

  std::uint64_t now = 1;

  RingCreditTest() { cache->ahead().make_ring({.is_percent = false, .value = 8 * k_mib}); }
  bool take(unsigned unasked = 0) { return credit.take(unasked, now); }
  // Each a second after the previous one.
  void find_no_room(int times) {
    for (; times > 0; --times) {
      now += 1000 * base::k_ns_per_ms;
      credit.note_no_room(k_bytes, now);
    }
  }
};

TEST_F(RingCreditTest, RoomThatIsPromisedToOthersIsNotPromisedAgain) {
  const auto records = static_cast<unsigned>(cache->ahead().ring_room() / k_average);
  ASSERT_GT(records, 100U);
  EXPECT_FALSE(take(2 * records));
  EXPECT_FALSE(take(records));
  EXPECT_TRUE(take(records - 1));
  EXPECT_FALSE(take(records));
}

TEST_F(RingCreditTest, RecordThatWasPlacedEndsThePauseOfOneThatFoundNoRoom) {
  ASSERT_TRUE(take());
  find_no_room(20);
  ASSERT_FALSE(take());
  credit.note_placed(k_bytes);
  EXPECT_TRUE(take());
}

TEST_F(RingCreditTest, FirstPauseAfterARecordThatWasPlacedIsShort) {
  find_no_room(20);
  credit.note_placed(k_bytes);
  find_no_room(1);
  ASSERT_FALSE(take());
  now += 1'000'000;
  EXPECT_TRUE(take());
}

TEST_F(RingCreditTest, PausesGrowToHalfASecondAndNoLonger) {
  find_no_room(1000);
  now += 400'000'000;
  EXPECT_FALSE(take());
  now += 100'000'000;
  EXPECT_TRUE(take());
}

}  // namespace
}  // namespace cube::prefetch
