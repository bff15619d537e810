// Whether the ring has room for one more fetch, after one that found none.
#include "prefetch/ring_credit.h"

#include <gtest/gtest.h>

#include "cache/base/clock.h"
#include "tests/support/test_region.h"

namespace cube::prefetch {
namespace {

using tests::k_mib;

struct RingCreditTest : ::testing::Test {
  static constexpr std::uint64_t k_bytes = 60'000;
  tests::TestCache cache{32 * k_mib};
  RingCredit credit{cache->ahead()};

  RingCreditTest() { cache->ahead().make_ring({.is_percent = false, .value = 8 * k_mib}); }
  // Until a quarter of a second passes between two tries in vain.
  void pause_for_long() {
    const std::uint64_t until = base::monotonic_ns() + 300'000'000;
    while (base::monotonic_ns() < until) credit.note_no_room(k_bytes);
  }
};

TEST_F(RingCreditTest, RecordThatWasPlacedEndsThePauseOfOneThatFoundNoRoom) {
  ASSERT_TRUE(credit.take(0));
  bool has_paused = false;
  // The pause may end between two lines.
  for (int i = 0; i < 20 && !has_paused; ++i) {
    pause_for_long();
    has_paused = !credit.take(0);
  }
  ASSERT_TRUE(has_paused);
  credit.note_placed(k_bytes);
  EXPECT_TRUE(credit.take(0));
}

TEST_F(RingCreditTest, FirstPauseAfterARecordThatWasPlacedIsShort) {
  bool is_short = false;
  // On a busy machine some look long.
  for (int i = 0; i < 20 && !is_short; ++i) {
    pause_for_long();
    credit.note_placed(k_bytes);
    const std::uint64_t began = base::monotonic_ns();
    credit.note_no_room(k_bytes);
    while (!credit.take(0)) {
    }
    is_short = base::monotonic_ns() - began < 100'000'000;
  }
  EXPECT_TRUE(is_short);
}

}  // namespace
}  // namespace cube::prefetch
