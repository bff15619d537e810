// The ring: only files that have been read make room for the next ones.
#include "cache/region/ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <thread>
#include <vector>

#include "tests/cache/ring_fixture.h"

namespace cube::cache {
namespace {

using tests::k_mib;
using tests::put_in_ring;
using tests::TestRegion;

TEST_F(RingTest, OccupiesTheLastSegmentsPermanently) {
  const std::uint32_t all = region->layout().segment_count;
  EXPECT_TRUE(ring.is_made());
  EXPECT_EQ(ring.first_segment(), all - 4);
  ring.make(16 * k_mib);
  EXPECT_EQ(ring.first_segment(), all - 4);
  const TestRegion other(32 * k_mib);
  Ring half(*other);
  half.make(UINT64_MAX);
  EXPECT_EQ(half.first_segment(),
            other->layout().segment_count - other->layout().segment_count / 2);
}

TEST_F(RingTest, ASmallRegionHasASmallOne) {
  const TestRegion small(8 * k_mib);
  const std::uint32_t segments = small->layout().segment_count;
  Ring one(*small);
  one.make(100 * k_mib);
  EXPECT_EQ(one.end_segment() - one.first_segment(), segments / 2);
  EXPECT_EQ(one.room(), std::uint64_t{segments / 2} * small->layout().segment_bytes);
}

TEST(RingSize, InPercentIsOfTheRegion) {
  tests::TestCache cache(64 * k_mib);
  cache->ahead().make_ring({.is_percent = true, .value = 25});
  const Ring& ring = cache->ahead().ring();
  const RegionLayout& layout = cache->region().layout();
  const std::uint64_t segments = layout.file_bytes / 4 / layout.segment_bytes;
  EXPECT_EQ(ring.end_segment() - ring.first_segment(), segments);
}

TEST_F(RingTest, ResidentRecordsNeverGoToTheRing) {
  int stored = 0;
  for (; stored < 10'000; ++stored) {
    const auto pin = tests::put(tier, "/r/" + std::to_string(stored), std::string(k_bytes, 'x'));
    if (!pin) break;
    ASSERT_FALSE(ring.holds(**pin));
    ASSERT_LT(ring.segment_of(**pin), ring.first_segment());
  }
  EXPECT_GT(stored, 100);
  // All room of the ring is still free.
  EXPECT_EQ(ring.room(), 8 * k_mib);
  EXPECT_TRUE(put_next());
}

TEST_F(RingTest, KeepsUnreadFiles) {
  fill();
  EXPECT_EQ(ring.room(), 0U);
  EXPECT_EQ(put_next().error().value, ENOSPC);
  for (const auto& path : paths) EXPECT_TRUE(open(path)) << path;
}

TEST_F(RingTest, SegmentThatHasBeenReadIsReclaimed) {
  fill();
  const std::vector<std::string> opened = open_first_segment();
  ASSERT_GT(opened.size(), 20U);
  EXPECT_EQ(ring.room(), 2 * k_mib);
  const std::size_t before = paths.size();
  fill();
  EXPECT_GE(paths.size(), before + opened.size());
  for (const auto& path : opened) EXPECT_FALSE(tests::find(tier, path)) << path;
  for (std::size_t i = opened.size(); i < paths.size(); ++i)
    EXPECT_TRUE(open(paths[i])) << paths[i];
  EXPECT_EQ(tests::counters_of(*region), "right");
}

TEST_F(RingTest, RecordOfAReclaimedSegmentIsNotUnread) {
  fill();
  const auto place_of = [&](const std::string& path) {
    const Pin pin = tests::find(tier, path);
    EXPECT_TRUE(pin) << path;
    return tier.place_of(*pin);
  };
  const auto is_unread = [&](const RamTier::PlaceInRegion& place) {
    return ring.is_unread(place.segment, place.generation, place.offset);
  };
  const RamTier::PlaceInRegion former = place_of(paths.front());
  EXPECT_TRUE(is_unread(former));
  open_first_segment();
  EXPECT_FALSE(is_unread(former));
  ASSERT_TRUE(put_next());
  const RamTier::PlaceInRegion now = place_of(paths.back());
  ASSERT_EQ(now.segment, former.segment);
  ASSERT_EQ(now.offset, former.offset);
  EXPECT_TRUE(is_unread(now));
  EXPECT_FALSE(is_unread(former));
}

TEST_F(RingTest, UnreadFileBlocksOnlyItsSegment) {
  fill();
  const std::uint32_t held = segment_of(paths[3]);
  for (const auto& path : paths) {
    if (path == paths[3]) continue;
    EXPECT_TRUE(open(path));
  }
  EXPECT_EQ(ring.unread(held), 1U);
  // The other segments, except the last one, which is being filled.
  EXPECT_EQ(ring.room(), 4 * k_mib);
}

TEST_F(RingTest, AFirstOpenCountsOnce) {
  const auto pin = put_next();
  ASSERT_TRUE(pin);
  EXPECT_TRUE(ring.note_opened(**pin));
  EXPECT_FALSE(ring.note_opened(**pin));
  EXPECT_EQ(ring.unread(ring.segment_of(**pin)), 0U);
}

TEST_F(RingTest, OpenFileKeepsItsBytes) {
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
  // The first segment is closed. All of it has been read except the room that is still reserved.
  EXPECT_EQ(ring.room(), 4 * k_mib);
  *room = {};
  EXPECT_EQ(ring.room(), 6 * k_mib);
}

TEST_F(RingTest, DoesNotWaitForChangedFiles) {
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

TEST_F(RingTest, DoesNotWaitForAChangedTree) {
  fill();
  EXPECT_EQ(tier.mark_stale_tree("/data"), paths.size());
  EXPECT_EQ(ring.room(), 6 * k_mib);
}

TEST_F(RingTest, SegmentGivenUpMakesRoomAndCanStillBeRead) {
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

TEST_F(RingTest, KeepsFilesThatAreWantedAgain) {
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

// A slot of the index keeps 12 bits of the generation.
TEST_F(RingTest, WrappedGenerationShowsNoOldRecord) {
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
  // All bytes of the record are still there, because nobody has written to its segment.
  EXPECT_FALSE(tests::find(tier, paths.front()));
}

TEST_F(RingTest, LastReaderOfASegmentWakesTheLeaderThatWaitsForRoom) {
  fill();
  const std::uint32_t wakeups = region->header().ring_wakeups.load();
  std::thread leader([&] {
    while (ring.room() == 0) ring.wait_for_room(60'000'000'000ULL);
  });
  while (region->header().ring_waiting.load() == 0) std::this_thread::yield();
  open_first_segment();
  leader.join();  // otherwise the leader would wait for a minute, longer than this test may take
  EXPECT_GT(region->header().ring_wakeups.load(), wakeups);
  EXPECT_FALSE(ring.wait_for_room(60'000'000'000ULL)) << "there is room";
}

TEST_F(RingTest, RefusesAFileLargerThanASegment) {
  EXPECT_EQ(tier.reserve_in_ring(10, 2 * k_mib).error().value, EFBIG);
  EXPECT_EQ(tier.reserve_in_ring(10, 200 * k_mib).error().value, EFBIG);
  EXPECT_TRUE(tier.reserve_in_ring(10, 2 * k_mib - 64'000));
}

TEST_F(RingTest, ConcurrentReadersAndLeaderSeeRightBytes) {
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
      // Each reader keeps some files open after others have continued, and reads them last.
      std::deque<Pin> kept;
      const auto look_at_oldest = [&] {
        const Pin& pin = kept.front();
        if (tests::bytes_of(*pin) != content(std::string(pin->path()))) ++wrong;
        kept.pop_front();
      };
      for (int i = r; i < k_files; i += k_readers) {
        // The reader stays so far behind that the files it has read are reclaimed next.
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
  for (std::uint32_t s = ring.first_segment(); s < ring.end_segment(); ++s)
    EXPECT_EQ(ring.unread(s), 0U);
}

TEST_F(RingTest, FullRingDidNotComeTooLate) {
  EXPECT_FALSE(ring.came_too_late());
  fill();
  EXPECT_FALSE(ring.came_too_late()) << "its own records fill it";
}

}  // namespace
}  // namespace cube::cache
