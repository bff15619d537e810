// The unread records of the ring, their readers, and the segments that no reader will read any
// more. Also the decisions whether prefetching is stuck and whether the ring is too small for its
// readers.
#include "prefetch/pace/ring_watch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/support/ring_files.h"

namespace cube::prefetch {
namespace {

using tests::k_mib;

struct Order final : PathSource {
  std::map<std::uint32_t, std::uint64_t> passed_below;
  Next next(PlannedFile&) override { return Next::none_yet; }
  std::uint64_t passed(std::uint32_t reader) override { return passed_below[reader]; }
};

constexpr std::uint64_t k_stuck_ns = 200'000'000, k_long_ns = 2'000'000'000;

// Simulates that prefetching has been stuck for this long.
void stand_still(RingWatch& watch, std::uint64_t ns) {
  watch.look({.now_ns = 1, .is_blocked = true});
  watch.look({.now_ns = 1 + ns, .is_blocked = true, .demanded = 1});
}

std::uint32_t give_up_unknown(RingWatch& watch) {
  Order order;
  stand_still(watch, k_long_ns);
  return watch.give_up(order, /*is_starved=*/false);
}

struct RingWatchTest : ::testing::Test {
  static constexpr std::size_t k_bytes = 60'000;
  tests::TestRegion region{32 * k_mib};
  cache::RamTier tier{*region};
  cache::Ring& ring = tier.ring();
  RingWatch watch{ring};
  Order order;
  std::uint64_t added = 0;
  std::vector<std::uint32_t> segments;  // the segment of each added file
  std::vector<Settled> settled;

  RingWatchTest() { ring.make(8 * k_mib); }

  static std::string path_of(std::uint64_t number) { return "/data/" + std::to_string(number); }
  // Returns false if there is no room.
  bool add(std::uint32_t reader = 7, std::size_t bytes = k_bytes) {
    const auto pin = tests::put_in_ring(tier, path_of(added), std::string(bytes, 'x'));
    if (!pin) return false;
    const auto place = tier.place_of(**pin);
    watch.add(place, reader, added++);
    segments.push_back(place.segment);
    return true;
  }
  void fill(std::size_t bytes = k_bytes) {
    while (add(7, bytes)) {
    }
  }
  void open(std::uint64_t number) {
    const cache::Pin pin = tests::find(tier, path_of(number));
    ASSERT_TRUE(pin) << number;
    ring.note_opened(*pin);
  }
  // Returns how many files of this reader are settled.
  std::uint32_t look(std::uint32_t reader = 7) {
    watch.look({});
    settled = watch.take_settled();
    std::uint32_t files = 0;
    for (const Settled& row : settled) files += row.reader == reader ? row.files : 0;
    return files;
  }
  std::uint32_t give_up(bool is_stuck, bool is_starved = false) {
    stand_still(watch, is_stuck ? k_stuck_ns : 0);
    const std::uint32_t dropped = watch.give_up(order, is_starved);
    settled = watch.take_settled();
    return dropped;
  }
  std::uint64_t first_of_next_segment() const {
    std::uint64_t i = 0;
    while (segments[i] == segments[0]) ++i;
    return i;
  }
};

TEST_F(RingWatchTest, ReportsOpenedFilesOnceWithTheirReader) {
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(add(7));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(add(8));
  EXPECT_EQ(look(), 0U);
  open(1);
  open(6);
  EXPECT_EQ(look(7), 1U);
  ASSERT_EQ(settled.size(), 2U);
  EXPECT_EQ(settled[0].files + settled[1].files, 2U);
  EXPECT_EQ(look(), 0U);
  EXPECT_TRUE(settled.empty());
}

// The leader checks every few milliseconds, but a segment can be reclaimed in less time.
TEST_F(RingWatchTest, SegmentReclaimedBetweenTwoLooksIsSettledToo) {
  fill();
  const auto in_first = static_cast<std::uint32_t>(first_of_next_segment());
  for (std::uint32_t i = 0; i < in_first; ++i) open(i);
  ASSERT_TRUE(add());
  ASSERT_EQ(segments.back(), segments.front());
  EXPECT_EQ(look(), in_first);
  open(added - 1);
  EXPECT_EQ(look(), 1U);
}

// Reads of the small files that were in the segment before do not predict reads of the large files
// that are in it now.
TEST_F(RingWatchTest, ReclaimedSegmentIsNotGivenUpForReadsOfItsOldFiles) {
  // The other segments belong to a reader that has not reached them.
  while (add(segments.empty() || segments.back() == segments.front() ? 7 : 8, 10'000)) {
  }
  const std::uint64_t in_first = first_of_next_segment();
  ASSERT_GT(in_first, 100U);
  for (std::uint64_t i = 0; i < in_first; ++i) open(i);
  const std::uint64_t next = added;
  fill(500'000);
  ASSERT_EQ(segments[next], segments.front());
  ASSERT_GE(added - next, 3U);
  open(next);
  look();
  tier.release_ring_lease();
  EXPECT_EQ(give_up(true), 0U);
}

TEST_F(RingWatchTest, NothingIsGivenUpWithoutNeed) {
  fill();
  for (std::uint64_t i = 0; i < 40; ++i) open(i);
  look();
  EXPECT_EQ(give_up(false), 0U);
}

TEST_F(RingWatchTest, UnwantedSegmentIsGivenUpImmediately) {
  fill();
  const auto in_first = static_cast<std::uint32_t>(first_of_next_segment());
  order.passed_below[7] = in_first - 1;
  EXPECT_EQ(give_up(false), 0U) << "one is wanted still";
  order.passed_below[7] = in_first;
  EXPECT_EQ(give_up(false), in_first);
  ASSERT_EQ(settled.size(), 1U);
  EXPECT_EQ(settled[0].files, in_first);
  EXPECT_EQ(ring.room(), 2 * k_mib);
  EXPECT_EQ(give_up(false), 0U);
  EXPECT_EQ(look(), 0U) << "settled twice";
}

TEST_F(RingWatchTest, SegmentWantedLastGoesFirstIfAnotherReaderHasNothing) {
  fill();
  // The last segment is being filled.
  const auto is_other = [&](std::uint32_t segment) { return segment != segments.back(); };
  const std::uint32_t last = *std::find_if(segments.rbegin(), segments.rend(), is_other);
  EXPECT_EQ(give_up(false, /*is_starved=*/true),
            std::count(segments.begin(), segments.end(), last));
  EXPECT_EQ(ring.unread(last), 0U);
  EXPECT_NE(ring.unread(segments.front()), 0U);
  EXPECT_GE(ring.room(), 2 * k_mib);
  ASSERT_EQ(settled.size(), 1U);
  EXPECT_EQ(look(), 0U) << "settled twice";
}

TEST_F(RingWatchTest, BothReadersMustHavePassed) {
  while (add(added % 2 == 0 ? 7 : 8)) {
  }
  order.passed_below[7] = UINT64_MAX;
  EXPECT_EQ(give_up(false), 0U);
  order.passed_below[8] = UINT64_MAX;
  EXPECT_GT(give_up(false), 0U);
}

TEST_F(RingWatchTest, ReadersInOrderWhoAreBeyondASegmentDoNotComeBackToIt) {
  fill();
  const std::uint64_t next = first_of_next_segment();
  // Opens all files in order, except a third of the first segment.
  for (std::uint64_t i = 0; i < added; ++i) {
    if (i < next && i % 3 == 0) continue;
    open(i);
    look();
  }
  EXPECT_EQ(give_up(false), 0U);
  EXPECT_EQ(give_up(true), (next + 2) / 3);
}

TEST_F(RingWatchTest, ReadersWithoutOrderMayStillComeToASegment) {
  fill(10'000);
  const std::uint64_t next = first_of_next_segment();
  open(added - 1);
  // The files are opened in reverse order. Half of the first segment remains unread.
  for (std::uint64_t i = added - 1; i-- > next / 2;) {
    open(i);
    if (i % 16 == 0) look();
  }
  look();
  EXPECT_EQ(give_up(true), 0U);
}

TEST_F(RingWatchTest, AlmostFullyReadSegmentIsGivenUpWhenStuck) {
  // The files are so small that one of them is less than three in a hundred.
  fill(10'000);
  const std::uint64_t next = first_of_next_segment();
  ASSERT_GT(next, 100U);
  for (std::uint64_t i = next - 1; i-- > 0;) open(i);
  look();
  EXPECT_EQ(give_up(false), 0U);
  EXPECT_EQ(give_up(true), 1U);
}

TEST_F(RingWatchTest, UnknownFilesAreGivenUpLast) {
  ASSERT_TRUE(tests::put_in_ring(tier, "/former", std::string(k_bytes, 'x')));
  const std::uint32_t former = ring.end_segment() - 4;
  EXPECT_EQ(give_up_unknown(watch), 0U) << "it is being filled";
  tier.release_ring_lease();
  EXPECT_EQ(ring.unread(former), 1U);
  EXPECT_EQ(give_up(true), 0U);
  EXPECT_EQ(give_up_unknown(watch), 1U);
  EXPECT_EQ(ring.unread(former), 0U);
  ASSERT_TRUE(add());
  tier.release_ring_lease();
  EXPECT_EQ(give_up_unknown(watch), 0U) << "this one is known";
}

// If the region was full before the ring was made, the ring's segments can be anywhere in it.
TEST(LateRingWatch, FilesOfAPreviousLeaderInAJoinedSegmentAreGivenUp) {
  tests::TestRegion region{32 * k_mib};
  cache::RamTier tier{*region};
  cache::Ring& ring = tier.ring();
  const std::string data(60'000, 'x');
  for (int i = 0; tests::put(tier, "/resident/" + std::to_string(i), data); ++i) continue;
  tier.release_lease();
  ring.make(8 * k_mib);
  // Only the first segment can join.
  for (std::uint32_t segment = 1; segment < ring.end_segment(); ++segment)
    region->segment_row(segment).is_mapped.store(1);
  ASSERT_TRUE(tests::put_in_ring(tier, "/ahead", data));
  ASSERT_TRUE(ring.owns(0));
  tier.release_ring_lease();
  RingWatch of_next_leader(ring);
  EXPECT_EQ(give_up_unknown(of_next_leader), 1U);
  EXPECT_EQ(ring.room(), 2 * k_mib);
}

// A reader was killed after it set the bit and before it counted the read. Such a segment must not
// hide the segments after it.
TEST_F(RingWatchTest, WrongCountDoesNotHideLaterSegments) {
  fill();
  const std::uint32_t first = segments[0];
  const std::uint64_t next = first_of_next_segment();
  region->segment_row(first).unread.fetch_add(1);
  for (std::uint64_t i = 0; i < next; ++i) open(i);
  EXPECT_EQ(ring.room(), 0U);
  EXPECT_EQ(look(), next);
  EXPECT_EQ(ring.room(), 2 * k_mib);
  RingWatch of_next_leader(ring);
  region->segment_row(first).unread.fetch_add(1);
  EXPECT_GT(give_up_unknown(of_next_leader), 0U);
  EXPECT_EQ(ring.unread(first), 0U);
}

// A simulated ring has many more entries than one check may process.
TEST_F(RingWatchTest, ManyEntriesAreSettledInAFewLooks) {
  constexpr std::uint64_t k_each = 100'000;
  for (std::uint32_t s = ring.first_segment(); s < ring.end_segment(); ++s) {
    for (std::uint64_t i = 0; i < k_each; ++i)
      watch.add({.segment = s, .generation = 1, .offset = i % 1000 * 256}, 7, added++);
  }
  std::uint32_t first = look(), sum = first;
  EXPECT_GT(first, 0U);
  EXPECT_LT(first, 3 * k_each);
  for (int i = 0; i < 8; ++i) sum += look();
  EXPECT_EQ(sum, 4 * k_each);
}

TEST_F(RingWatchTest, ASearchAmongManyEntriesIsShort) {
  // At quadratic cost, the search would take hours. The test's limit is two minutes.
  constexpr std::uint64_t k_each = 300'000;
  fill();
  for (std::uint32_t s = ring.first_segment(); s < ring.end_segment(); ++s) {
    const std::uint32_t generation = tests::word_of(*region, s).generation;
    for (std::uint64_t i = 0; i < k_each; ++i)
      watch.add({.segment = s, .generation = generation}, 7, added++);
  }
  open(first_of_next_segment() + 1);
  look();
  EXPECT_EQ(give_up(true), 0U);
}

// Advances the clock between ticks. A tick without an open of the ring's files counts as a tick in
// which no program reads from the ring.
struct RingStallTest : RingWatchTest {
  std::uint64_t tick(std::uint64_t now_ns, bool is_blocked, bool has_read, std::uint64_t demanded) {
    if (has_read) {
      add();
      open(added - 1);
    }
    watch.look({.now_ns = now_ns, .is_blocked = is_blocked, .demanded = demanded});
    return watch.stuck_ns();
  }
};

TEST_F(RingStallTest, CountsTheTimeWithoutReadsWhileProgramsFetch) {
  EXPECT_EQ(tick(100, true, false, 7), 0U);
  EXPECT_EQ(tick(300, true, false, 7), 0U) << "programs fetch nothing: they may not read at all";
  EXPECT_EQ(tick(400, true, false, 8), 300U);
  EXPECT_EQ(tick(500, true, false, 8), 400U);
}

// On a loaded machine, reading a segment can take longer than the leader waits, and files that the
// leader gives up must be fetched again.
TEST_F(RingStallTest, RestartsWithEachFileReadFromTheRing) {
  tick(100, true, false, 7);
  EXPECT_EQ(tick(400, true, true, 9), 0U);
  EXPECT_EQ(tick(500, true, false, 9), 0U);
  EXPECT_EQ(tick(600, true, false, 10), 200U);
}

TEST_F(RingStallTest, EndsOnceThereIsRoom) {
  tick(100, true, false, 7);
  EXPECT_EQ(tick(200, false, false, 9), 0U);
  EXPECT_EQ(tick(300, true, false, 10), 0U);
  EXPECT_EQ(tick(400, true, false, 11), 100U);
  fill();
  order.passed_below[7] = UINT64_MAX;
  EXPECT_GT(watch.give_up(order, false), 0U);
  EXPECT_EQ(tick(500, true, false, 12), 0U);
}

struct RingNeedTest : ::testing::Test {
  tests::TestRegion region{32 * k_mib};
  cache::RamTier tier{*region};
  RingWatch watch{tier.ring()};
  RingWatch::Seen seen;

  bool tick(unsigned fetched, unsigned overtaken, unsigned demanded, bool is_blocked) {
    seen.fetched += fetched;
    seen.overtaken += overtaken;
    seen.demanded += demanded;
    seen.is_blocked = is_blocked;
    return watch.is_too_small(seen);
  }
};

TEST_F(RingNeedTest, IsTooSmallIfProgramsFetchPlannedFilesWhileItIsFull) {
  EXPECT_FALSE(tick(10, 0, 0, true));
  EXPECT_FALSE(tick(0, 0, 3, true));
  // As soon as there is room again, the prefetcher reaches the files that programs have fetched.
  EXPECT_TRUE(tick(10, 3, 0, false));
  EXPECT_FALSE(tick(10, 0, 0, true)) << "it starts over";
}

TEST_F(RingNeedTest, IsLargeEnoughIfProgramsOvertookItWhileItHadRoom) {
  EXPECT_FALSE(tick(0, 0, 40, false));
  EXPECT_FALSE(tick(10, 40, 0, true)) << "at the begin of an epoch the prefetcher is not ahead yet";
  EXPECT_FALSE(tick(20, 0, 0, true));
}

TEST_F(RingNeedTest, IsLargeEnoughIfProgramsFetchUnplannedFiles) {
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(tick(10, 0, 10, true));
}

TEST_F(RingNeedTest, IsLargeEnoughIfProgramsFetchFewOfManyFiles) {
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(tick(100, 0, 1, true));
    EXPECT_FALSE(tick(50, 1, 1, true));
  }
}

TEST_F(RingNeedTest, IgnoresOldFetches) {
  tick(0, 0, 0, true);
  EXPECT_FALSE(tick(0, 0, 40, true));
  EXPECT_FALSE(tick(1000, 0, 0, false));
  EXPECT_FALSE(tick(0, 3, 0, false)) << "it was not full then";
}

TEST_F(RingNeedTest, AProcessThatEndsTakesItsCountsWithIt) {
  tick(10, 0, 1000, true);
  seen.demanded = 0;
  EXPECT_FALSE(tick(10, 3, 0, true));
  EXPECT_FALSE(tick(10, 3, 2, true));
}

}  // namespace
}  // namespace cube::prefetch
