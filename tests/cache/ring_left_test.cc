// Reservations, counts and segments that a process has left in the ring when it was killed, ended,
// or stopped leading.
#include <gtest/gtest.h>

#include "cache/region/segments.h"
#include "tests/cache/ring_fixture.h"
#include "tests/support/child.h"

namespace cube::cache {
namespace {

using tests::Child;
using tests::Gate;
using tests::k_mib;
using tests::put_in_ring;

TEST_F(RingTest, LostRoomIsNeverReused) {
  {
    auto room = tier.reserve_in_ring(10, k_bytes);
    ASSERT_TRUE(room);
    room->lose();
  }
  fill();
  for (const auto& path : paths) EXPECT_TRUE(open(path));
  EXPECT_EQ(ring.room(), 4 * k_mib);
}

TEST_F(RingTest, LostRunStaysReservedWhileItsProcessRuns) {
  Gate done, end;
  Child child([&] {
    Region* const own = tests::attach(region.options);
    CHILD_CHECK(own != nullptr);
    RamTier other(*own);
    auto room = other.reserve(10, 5 * k_mib);
    CHILD_CHECK(room);
    room->lose();
    // A process does this when it ends. The kernel may still be writing at that time.
    other.release_lease();
    own->detach();
    done.give();
    CHILD_CHECK(end.take());
    return 0;
  });
  ASSERT_TRUE(done.take());
  region->reap();
  std::uint32_t runs = 0;
  for (std::uint32_t i = 0; i < ring.first_segment(); ++i)
    runs += tests::word_of(*region, i).state == SegmentState::tail ? 1 : 0;
  EXPECT_EQ(runs, 2U);
  end.give();
  EXPECT_EQ(child.wait(), 0);
  region->reap();
  for (std::uint32_t i = 0; i < ring.first_segment(); ++i)
    EXPECT_NE(tests::word_of(*region, i).state, SegmentState::tail);
}

// A process was killed between the bit and its count.
TEST_F(RingTest, TooHighACountIsCorrected) {
  fill();
  const std::uint32_t segment = segment_of(paths.front());
  region->segment_row(segment).unread.fetch_add(1);
  EXPECT_FALSE(ring.settle_count(segment)) << "of one that is not read yet";
  open_first_segment();
  EXPECT_EQ(ring.unread(segment), 1U);
  {
    const Pin pin = tests::find(tier, paths.front());
    EXPECT_FALSE(ring.settle_count(segment)) << "while somebody may be about to count";
  }
  EXPECT_TRUE(ring.settle_count(segment));
  EXPECT_EQ(ring.room(), 2 * k_mib);
  EXPECT_FALSE(ring.settle_count(segment));
}

TEST_F(RingTest, GivingUpCorrectsTheCount) {
  fill();
  const std::uint32_t segment = segment_of(paths.front());
  region->segment_row(segment).unread.fetch_add(1);
  EXPECT_GT(ring.give_up(segment), 0U);
  EXPECT_EQ(ring.room(), 2 * k_mib);
}

TEST_F(RingTest, SegmentStaysReadableIfItsTakerIsKilled) {
  fill();
  const std::vector<std::string> opened = open_first_segment();
  const std::uint32_t segment = segment_of(opened.front());
  Gate ready;
  Child child([&] {
    Region* const own = tests::attach(region.options);
    CHILD_CHECK(own != nullptr);
    SegmentRow& row = own->segment_row(segment);
    const SegmentWord before = tests::word_of(*own, segment);
    CHILD_CHECK(
        swap_word(row, before, {SegmentState::evicting, own->own_slot(), before.generation}));
    // The next step of Ring::take_used_up.
    own->header().records.fetch_sub(row.records.exchange(0));
    own->header().used_bytes.fetch_sub(row.used_bytes.exchange(0));
    row.fill.store(0);
    ready.give();
    return tests::wait_for_death();
  });
  ASSERT_TRUE(ready.take());
  EXPECT_FALSE(tests::find(tier, opened.front()));
  EXPECT_FALSE(put_next());
  child.kill();
  region->reap();
  EXPECT_EQ(tests::word_of(*region, segment).state, SegmentState::sealed);
  for (const auto& path : opened) EXPECT_TRUE(open(path)) << path;
  EXPECT_TRUE(put_next());
  EXPECT_EQ(tests::counters_of(*region), "right");
}

TEST_F(RingTest, NextLeaderUsesTheSegmentsOfADeadOne) {
  Gate ready;
  Child child([&] {
    Region* const own = tests::attach(region.options);
    CHILD_CHECK(own != nullptr);
    RamTier other(*own);
    for (int i = 0; i < 3; ++i) {
      const std::string path = "/dead/" + std::to_string(i);
      CHILD_CHECK(put_in_ring(other, path, content(path)));
    }
    auto room = other.reserve_in_ring(10, k_bytes);
    CHILD_CHECK(room);
    ready.give();
    return tests::wait_for_death();
  });
  ASSERT_TRUE(ready.take());
  const std::uint32_t segment = segment_of("/dead/0");
  EXPECT_TRUE(ring.is_being_filled(segment));
  child.kill();
  region->reap();
  EXPECT_FALSE(ring.is_being_filled(segment));
  EXPECT_EQ(ring.room(), 6 * k_mib);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(open("/dead/" + std::to_string(i)));
  EXPECT_EQ(ring.room(), 8 * k_mib);
}

TEST_F(RingTest, ReleasedLeaseFreesItsSegment) {
  ASSERT_TRUE(put_next());
  EXPECT_EQ(ring.room(), 6 * k_mib);
  EXPECT_TRUE(open(paths.front()));
  tier.release_ring_lease();
  EXPECT_EQ(ring.room(), 8 * k_mib);
  EXPECT_TRUE(put_next());
}

}  // namespace
}  // namespace cube::cache
