// The ring: what has been read makes room for what comes next, and nothing else does.
#include "cache/region/ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <thread>

#include "cache/base/clock.h"
#include "cache/region/process_slots.h"
#include "cache/region/robust_lock.h"
#include "tests/support/child.h"
#include "tests/support/ring_files.h"

namespace cube::cache {
namespace {

using tests::Child;
using tests::Gate;
using tests::k_mib;
using tests::open_right;
using tests::put_in_ring;
using tests::TestRegion;

constexpr std::size_t k_bytes = 60'000;

struct RingTest : testing::Test {
  TestRegion region{32 * k_mib};
  RamTier tier{*region};
  Ring& ring = tier.ring();
  std::vector<std::string> paths;

  RingTest() { ring.make(8 * k_mib); }

  static std::string content(const std::string& path) { return tests::content_of(path, 0, k_bytes); }
  base::Result<Pin> put_next() {
    const std::string path = "/data/" + std::to_string(paths.size());
    auto pin = put_in_ring(tier, path, content(path));
    if (pin) paths.push_back(path);
    return pin;
  }
  bool open(const std::string& path) { return open_right(tier, path, content(path)); }
  std::uint32_t segment_of(const std::string& path) {
    const Pin pin = tests::find(tier, path);
    return pin ? ring.segment_of(*pin) : UINT32_MAX;
  }
  // Until there is no room.
  void fill() {
    while (put_next()) {
    }
  }
  // All that lie in the segment of the first one; returns them.
  std::vector<std::string> open_first_segment() {
    const std::uint32_t segment = segment_of(paths.front());
    std::vector<std::string> opened;
    for (const auto& path : paths) {
      if (segment_of(path) == segment && open(path)) opened.push_back(path);
    }
    return opened;
  }
};

TEST_F(RingTest, IsTheLastSegmentsOnceAndForAll) {
  const std::uint32_t all = region->layout().segment_count;
  EXPECT_TRUE(ring.is_made());
  EXPECT_EQ(ring.first_segment(), all - 4);
  ring.make(16 * k_mib);
  EXPECT_EQ(ring.first_segment(), all - 4);
  const TestRegion other(32 * k_mib);
  Ring half(*other);
  half.make(UINT64_MAX);
  EXPECT_EQ(half.first_segment(), other->layout().segment_count - other->layout().segment_count / 2);
}

TEST_F(RingTest, ASmallRegionHasASmallOne) {
  const TestRegion small(8 * k_mib);
  const std::uint32_t segments = small->layout().segment_count;
  Ring one(*small);
  one.make(100 * k_mib);
  EXPECT_EQ(one.end_segment() - one.first_segment(), segments / 2);
  EXPECT_EQ(one.room(), std::uint64_t{segments / 2} * small->layout().segment_bytes);
}

TEST_F(RingTest, WhatStaysNeverGoesThere) {
  int stored = 0;
  for (; stored < 10'000; ++stored) {
    const auto pin = tests::put(tier, "/r/" + std::to_string(stored), std::string(k_bytes, 'x'));
    if (!pin) break;
    ASSERT_FALSE(ring.holds(**pin));
    ASSERT_LT(ring.segment_of(**pin), ring.first_segment());
  }
  EXPECT_GT(stored, 100);
  // And the ring has all of its room still.
  EXPECT_EQ(ring.room(), 8 * k_mib);
  EXPECT_TRUE(put_next());
}

TEST_F(RingTest, WhatHasNotBeenReadIsKept) {
  fill();
  EXPECT_EQ(ring.room(), 0U);
  EXPECT_EQ(put_next().error().value, ENOSPC);
  for (const auto& path : paths) EXPECT_TRUE(open(path)) << path;
}

TEST_F(RingTest, ASegmentThatHasBeenReadIsUsedAnew) {
  fill();
  const std::vector<std::string> opened = open_first_segment();
  ASSERT_GT(opened.size(), 20U);
  EXPECT_EQ(ring.room(), 2 * k_mib);
  const std::size_t before = paths.size();
  fill();
  EXPECT_GE(paths.size(), before + opened.size());
  for (const auto& path : opened) EXPECT_FALSE(tests::find(tier, path)) << path;
  for (std::size_t i = opened.size(); i < paths.size(); ++i) EXPECT_TRUE(open(paths[i])) << paths[i];
  EXPECT_EQ(tests::counters_of(*region), "right");
}

TEST_F(RingTest, OneThatIsNotReadHoldsUpItsSegmentOnly) {
  fill();
  const std::uint32_t held = segment_of(paths[3]);
  for (const auto& path : paths) {
    if (path == paths[3]) continue;
    EXPECT_TRUE(open(path));
  }
  EXPECT_EQ(ring.unread(held), 1U);
  // The others, but for the last, which is being filled.
  EXPECT_EQ(ring.room(), 4 * k_mib);
}

TEST_F(RingTest, AFirstOpenCountsOnce) {
  const auto pin = put_next();
  ASSERT_TRUE(pin);
  EXPECT_TRUE(ring.note_opened(**pin));
  EXPECT_FALSE(ring.note_opened(**pin));
  EXPECT_EQ(ring.unread(ring.segment_of(**pin)), 0U);
}

TEST_F(RingTest, WhatSomebodyHasOpenKeepsItsBytes) {
  fill();
  const Pin held = tests::find(tier, paths.front());
  open_first_segment();
  bool is_pinned = false;
  EXPECT_EQ(ring.room(&is_pinned), 0U);
  EXPECT_TRUE(is_pinned);
  EXPECT_FALSE(put_next());
  EXPECT_EQ(tests::bytes_of(*held), content(paths.front()));
  EXPECT_TRUE(tests::find(tier, paths.front()));
}

TEST_F(RingTest, ARoomThatIsBeingFilledKeepsItsSegment) {
  auto room = tier.reserve_in_ring(10, k_bytes);
  ASSERT_TRUE(room);
  fill();
  for (const auto& path : paths) EXPECT_TRUE(open(path));
  // The first segment is closed and all of it has been read but for that room.
  EXPECT_EQ(ring.room(), 4 * k_mib);
  *room = {};
  EXPECT_EQ(ring.room(), 6 * k_mib);
}

TEST_F(RingTest, ALostRoomIsLostForGood) {
  {
    auto room = tier.reserve_in_ring(10, k_bytes);
    ASSERT_TRUE(room);
    room->lose();
  }
  fill();
  for (const auto& path : paths) EXPECT_TRUE(open(path));
  EXPECT_EQ(ring.room(), 4 * k_mib);
}

TEST_F(RingTest, ARunWithALostRoomIsNobodyElsesWhileItsProcessRuns) {
  Gate done, end;
  Child child([&] {
    Region* const own = tests::attach(region.options);
    CHILD_CHECK(own != nullptr);
    RamTier other(*own);
    auto room = other.reserve(10, 5 * k_mib);
    CHILD_CHECK(room);
    room->lose();
    // As at its end; the kernel may still be writing.
    other.release_lease();
    own->detach();
    done.give();
    CHILD_CHECK(end.take());
    return 0;
  });
  ASSERT_TRUE(done.take());
  region->reap();
  std::uint32_t runs = 0;
  for (std::uint32_t i = 0; i < ring.first_segment(); ++i) runs += tests::word_of(*region, i).state == SegmentState::tail ? 1 : 0;
  EXPECT_EQ(runs, 2U);
  end.give();
  EXPECT_EQ(child.wait(), 0);
  region->reap();
  for (std::uint32_t i = 0; i < ring.first_segment(); ++i) EXPECT_NE(tests::word_of(*region, i).state, SegmentState::tail);
}

TEST_F(RingTest, WhatHasChangedIsNotWaitedFor) {
  fill();
  const std::uint32_t segment = segment_of(paths.front());
  std::vector<std::string> changed;
  for (const auto& path : paths) {
    if (segment_of(path) == segment) changed.push_back(path);
  }
  for (std::size_t i = 0; i < changed.size(); ++i) {
    if (i % 2 == 0) {
      EXPECT_EQ(tier.mark_stale(changed[i]), 1U);
    } else {
      EXPECT_EQ(tier.mark_stale_inode(tests::stat_for(changed[i], k_bytes)), 1U);
    }
  }
  EXPECT_EQ(ring.unread(segment), 0U);
  EXPECT_EQ(ring.room(), 2 * k_mib);
}

TEST_F(RingTest, ATreeThatHasChangedIsNotWaitedFor) {
  fill();
  EXPECT_EQ(tier.mark_stale_tree("/data"), paths.size());
  EXPECT_EQ(ring.room(), 6 * k_mib);
}

TEST_F(RingTest, WhatIsGivenUpMakesRoomAndCanStillBeRead) {
  fill();
  const std::uint32_t segment = segment_of(paths.front());
  const std::uint32_t there = ring.unread(segment);
  EXPECT_TRUE(open(paths.front()));
  EXPECT_EQ(ring.give_up(segment), there - 1);
  EXPECT_EQ(ring.give_up(segment), 0U);
  EXPECT_EQ(ring.room(), 2 * k_mib);
  EXPECT_TRUE(open(paths[1]));
  EXPECT_EQ(ring.unread(segment), 0U);
}

TEST_F(RingTest, WhatIsWantedAgainIsKept) {
  fill();
  const std::vector<std::string> opened = open_first_segment();
  {
    const Pin pin = tests::find(tier, opened[5]);
    ASSERT_TRUE(pin);
    EXPECT_TRUE(ring.want_again(*pin));
    EXPECT_FALSE(ring.want_again(*pin));
  }
  EXPECT_EQ(ring.room(), 0U);
  EXPECT_FALSE(put_next());
  EXPECT_TRUE(open(opened[5]));
  EXPECT_EQ(ring.room(), 2 * k_mib);
  EXPECT_TRUE(put_next());
  const auto resident = tests::put(tier, "/resident", "x");
  ASSERT_TRUE(resident);
  EXPECT_FALSE(ring.want_again(**resident));
}

// Between the bit and its count somebody was killed.
TEST_F(RingTest, ACountThatIsTooHighIsSettled) {
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

TEST_F(RingTest, GivingUpSettlesTheCountToo) {
  fill();
  const std::uint32_t segment = segment_of(paths.front());
  region->segment_row(segment).unread.fetch_add(1);
  EXPECT_GT(ring.give_up(segment), 0U);
  EXPECT_EQ(ring.room(), 2 * k_mib);
}

// A slot of the index keeps 12 bits of the generation.
TEST_F(RingTest, AGenerationThatComesRoundAgainShowsNothingOld) {
  std::uint32_t segment = 0, generation = 0;
  {
    const auto pin = put_next();
    ASSERT_TRUE(pin);
    segment = ring.segment_of(**pin);
    generation = tests::word_of(*region, segment).generation;
    ring.note_opened(**pin);
  }
  tier.release_ring_lease();
  ASSERT_TRUE(tests::find(tier, paths.front()));
  Ring other(*region);
  while (tests::word_of(*region, segment).generation != generation + 4096) {
    const auto leased = other.lease();
    ASSERT_TRUE(leased);
    seal_segment(*region, *leased);
  }
  // Its bytes are all there, nobody has written anything.
  EXPECT_FALSE(tests::find(tier, paths.front()));
}

TEST_F(RingTest, KilledWhileASegmentWasTakenItIsReadAsBefore) {
  fill();
  const std::vector<std::string> opened = open_first_segment();
  const std::uint32_t segment = segment_of(opened.front());
  Gate ready;
  Child child([&] {
    Region* const own = tests::attach(region.options);
    CHILD_CHECK(own != nullptr);
    SegmentRow& row = own->segment_row(segment);
    const SegmentWord before = tests::word_of(*own, segment);
    CHILD_CHECK(swap_word(row, before, {SegmentState::evicting, own->own_slot(), before.generation}));
    // The next step in Ring::take_used_up.
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

TEST_F(RingTest, TheNextLeaderUsesWhatADeadOneHasFilled) {
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

TEST_F(RingTest, WhoDoesNotLeadAnyMoreLeavesItsSegment) {
  ASSERT_TRUE(put_next());
  EXPECT_EQ(ring.room(), 6 * k_mib);
  EXPECT_TRUE(open(paths.front()));
  tier.release_ring_lease();
  EXPECT_EQ(ring.room(), 8 * k_mib);
  EXPECT_TRUE(put_next());
}

TEST_F(RingTest, TheLastReaderOfASegmentWakesWhoWaitsForRoom) {
  fill();
  const std::uint32_t wakeups = region->header().ring_wakeups.load();
  std::thread leader([&] {
    while (ring.room() == 0) ring.wait_for_room(60'000'000'000ULL);
  });
  while (region->header().ring_waiting.load() == 0) std::this_thread::yield();
  open_first_segment();
  leader.join();  // it waits for a minute else, which is more than this test may take
  EXPECT_GT(region->header().ring_wakeups.load(), wakeups);
  EXPECT_FALSE(ring.wait_for_room(60'000'000'000ULL)) << "there is room";
}

TEST_F(RingTest, TooLargeForASegmentIsRefused) {
  EXPECT_EQ(tier.reserve_in_ring(10, 2 * k_mib).error().value, EFBIG);
  EXPECT_EQ(tier.reserve_in_ring(10, 200 * k_mib).error().value, EFBIG);
  EXPECT_TRUE(tier.reserve_in_ring(10, 2 * k_mib - 64'000));
}

TEST_F(RingTest, ReadersAndALeaderAtOnceSeeRightBytes) {
  constexpr int k_files = 2000, k_readers = 3;
  std::atomic<int> published{0}, wrong{0}, missing{0};
  std::thread leader([&] {
    for (int i = 0; i < k_files; ++i) {
      const std::string path = "/data/" + std::to_string(i);
      while (!put_in_ring(tier, path, content(path))) ring.wait_for_room(1'000'000);
      published.store(i + 1);
    }
  });
  std::vector<std::thread> readers;
  for (int r = 0; r < k_readers; ++r) {
    readers.emplace_back([&, r] {
      RamTier own(*region);
      // Each keeps some open after others have gone on, and looks at them last.
      std::deque<Pin> kept;
      const auto look_at_oldest = [&] {
        const Pin& pin = kept.front();
        if (tests::bytes_of(*pin) != content(std::string(pin->path()))) ++wrong;
        kept.pop_front();
      };
      for (int i = r; i < k_files; i += k_readers) {
        // Far enough behind that what they have read is what is used anew next.
        while (published.load() <= std::min(i + 40, k_files - 1)) std::this_thread::yield();
        Pin pin = tests::find(own, "/data/" + std::to_string(i));
        if (!pin) {
          ++missing;
          continue;
        }
        own.ring().note_opened(*pin);
        kept.push_back(std::move(pin));
        if (kept.size() > 8) look_at_oldest();
      }
      while (!kept.empty()) look_at_oldest();
    });
  }
  leader.join();
  for (auto& reader : readers) reader.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(missing.load(), 0);
  EXPECT_EQ(tests::counters_of(*region), "right");
  for (std::uint32_t s = ring.first_segment(); s < ring.end_segment(); ++s) EXPECT_EQ(ring.unread(s), 0U);
}

}  // namespace
}  // namespace cube::cache
