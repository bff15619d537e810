// A ring that is made when the region is full. A few resident segments join it, but no segment that
// a program may still use.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cache/base/clock.h"
#include "cache/region/segments.h"
#include "tests/support/child.h"
#include "tests/support/late_ring.h"
#include "tests/support/ring_files.h"

namespace cube::cache {
namespace {

using tests::Child;
using tests::Gate;
using tests::k_late_bytes;
using tests::k_mib;
using tests::k_most_of_one;
using tests::late_content;
using tests::LateRing;

struct LateRingTest : testing::Test, LateRing {};

TEST_F(LateRingTest, TakesResidentSegmentsOneByOne) {
  EXPECT_FALSE(ring.came_too_late());
  EXPECT_FALSE(ring.is_in_use());
  EXPECT_EQ(ring.room(), 2 * k_mib);
  EXPECT_EQ(residents_left(), resident.size()) << "a look takes nothing away";
  ASSERT_TRUE(put_next());
  EXPECT_EQ(joined(), 1U);
  EXPECT_GE(residents_left(), resident.size() - k_most_of_one);
  EXPECT_TRUE(ring.is_in_use());
  fill();
  EXPECT_EQ(joined(), 4U);
  EXPECT_GE(residents_left(), resident.size() - 4 * k_most_of_one);
  EXPECT_EQ(ring.room(), 0U);
  EXPECT_GT(ahead.size(), 3 * k_most_of_one);
  for (const auto& path : ahead)
    EXPECT_TRUE(tests::open_right(tier, path, late_content(path))) << path;
  EXPECT_EQ(tests::counters_of(*region), "right");
}

TEST_F(LateRingTest, PassesFilesThroughAsAnyOther) {
  fill();
  const std::size_t left = residents_left();
  for (std::size_t i = 0; i < 1000; ++i) {
    ASSERT_LT(i, ahead.size());
    ASSERT_TRUE(tests::open_right(tier, ahead[i], late_content(ahead[i]))) << i;
    fill();
  }
  EXPECT_EQ(joined(), 4U);
  EXPECT_EQ(residents_left(), left);
  EXPECT_EQ(tests::counters_of(*region), "right");
}

// Workers of a loader have more files open for reading than a small ring holds.
TEST(LateRings, GrowByOneSegmentWhenTheyAreWidenedAndToAQuarterOfTheRegion) {
  LateRing late(64 * k_mib, 8 * k_mib);
  late.fill();
  ASSERT_EQ(late.joined(), 4U);
  const std::uint32_t most = late.ring.end_segment() / 4;
  ASSERT_GT(most, 5U);
  for (std::uint32_t segments = 5; segments <= most; ++segments) {
    ASSERT_TRUE(late.ring.widen());
    EXPECT_FALSE(late.ring.widen()) << "it has not taken the last one yet";
    EXPECT_EQ(late.ring.room(), 2 * k_mib);
    late.fill();
    EXPECT_EQ(late.joined(), segments);
  }
  EXPECT_FALSE(late.ring.widen());
  EXPECT_GE(late.residents_left(), late.resident.size() - most * k_most_of_one);
  EXPECT_EQ(tests::counters_of(*late.region), "right");
}

TEST(LateRings, TakeNoMoreThanEight) {
  LateRing late(64 * k_mib, 30 * k_mib);
  ASSERT_GT(late.ring.end_segment() - late.ring.first_segment(), 8U);
  late.fill();
  EXPECT_EQ(late.joined(), 8U);
  EXPECT_GE(late.residents_left(), late.resident.size() - 8 * k_most_of_one);
}

TEST(LateRings, TakeNoneWhileTheyHaveSegmentsToLease) {
  tests::TestRegion region{32 * k_mib};
  RamTier tier{*region};
  tier.ring().make(8 * k_mib);
  std::size_t put = 0;
  while (tests::put(tier, "/resident/" + std::to_string(put), std::string(k_late_bytes, 'x')))
    ++put;
  tier.release_lease();
  for (std::size_t i = 0;
       tests::put_in_ring(tier, "/ahead/" + std::to_string(i), std::string(k_late_bytes, 'y')); ++i)
    continue;
  for (std::size_t i = 0; i < put; ++i)
    EXPECT_TRUE(tests::find(tier, "/resident/" + std::to_string(i))) << i;
}

// A child may have inherited the mapping, so that no pin shows it.
TEST_F(LateRingTest, NeverTakesAMappedSegment) {
  {
    const std::vector<Pin> pins = one_of_each();
    for (std::uint32_t segment = 0; segment + 1 < pins.size(); ++segment)
      ring.note_mapped(*pins[segment]);
  }
  EXPECT_FALSE(ring.came_too_late()) << "one is left";
  ASSERT_TRUE(put_next());
  EXPECT_TRUE(ring.owns(ring.end_segment() - 1));
  fill();
  EXPECT_EQ(joined(), 1U);
  EXPECT_GE(residents_left(), resident.size() - k_most_of_one);
}

TEST_F(LateRingTest, ReportsThatItCameTooLateIfAllAreMapped) {
  {
    const std::vector<Pin> pins = one_of_each();
    for (const Pin& pin : pins) ring.note_mapped(*pin);
  }
  EXPECT_TRUE(ring.came_too_late());
  EXPECT_EQ(ring.room(), 0U);
  EXPECT_EQ(ring.lease().error().value, ENOSPC);
  EXPECT_EQ(residents_left(), resident.size());
}

TEST_F(LateRingTest, SkipsASegmentWithOpenFiles) {
  std::vector<Pin> pins = one_of_each();
  EXPECT_EQ(ring.room(), 0U);
  EXPECT_FALSE(put_next());
  EXPECT_EQ(residents_left(), resident.size());
  // The segment of this pin is far from the ring's own place.
  pins[1].release();
  EXPECT_EQ(ring.room(), 2 * k_mib);
  fill();
  EXPECT_TRUE(ring.owns(1));
  EXPECT_EQ(joined(), 1U);
  for (const auto& path : ahead)
    EXPECT_TRUE(tests::open_right(tier, path, late_content(path))) << path;
  tier.release_ring_lease();
  EXPECT_EQ(ring.room(), 2 * k_mib) << "its own is used anew";
  for (const Pin& pin : pins)
    EXPECT_TRUE(!pin || tests::bytes_of(*pin) == late_content(std::string(pin->path())));
}

TEST_F(LateRingTest, SkipsSegmentsWithUnreadPrefetchedFiles) {
  {
    const std::vector<Pin> pins = one_of_each();
    for (std::uint32_t segment = 1; segment < pins.size(); ++segment)
      ring.note_published(*pins[segment]);
  }
  ASSERT_TRUE(put_next());
  EXPECT_TRUE(ring.owns(0));
  fill();
  EXPECT_EQ(joined(), 1U);
  const Pin read = one_of_each()[5].duplicate();
  ASSERT_TRUE(read);
  EXPECT_TRUE(ring.note_opened(*read));
}

TEST_F(LateRingTest, SkipsSegmentsThatAreNotOnDiskYet) {
  region->header().disk_alive_ns.store(base::coarse_monotonic_ns() + 3'600'000'000'000ULL);
  EXPECT_EQ(ring.room(), 0U);
  EXPECT_FALSE(put_next());
  row(3).flushed.store(row(3).fresh.load());
  ASSERT_TRUE(put_next());
  EXPECT_TRUE(ring.owns(3));
  region->header().disk_alive_ns.store(0);
  EXPECT_EQ(ring.room(), 2 * k_mib) << "a disk that nobody writes is not awaited";
}

TEST_F(LateRingTest, SkipsSegmentsThatProcessesFill) {
  // All segments except the first belong to others.
  for (std::uint32_t segment = 1; segment < ring.end_segment(); ++segment) {
    const SegmentWord word = tests::word_of(*region, segment);
    ASSERT_TRUE(
        swap_word(row(segment), word, {SegmentState::open, region->own_slot(), word.generation}));
  }
  ASSERT_TRUE(put_next());
  EXPECT_TRUE(ring.owns(0));
  fill();
  EXPECT_EQ(joined(), 1U);
}

TEST(LateRings, SkipARoomThatIsBeingFilled) {
  tests::TestRegion region{32 * k_mib};
  RamTier tier{*region};
  auto room = tier.reserve(10, k_late_bytes);
  ASSERT_TRUE(room);
  std::byte* const data = room->data();
  for (int i = 0;
       tests::put(tier, "/resident/" + std::to_string(i), std::string(k_late_bytes, 'x')); ++i)
    continue;
  tier.release_lease();
  Ring& ring = tier.ring();
  ring.make(16 * k_mib);
  // No other segment may join, so only this one could.
  for (std::uint32_t segment = 1; segment < ring.end_segment(); ++segment)
    region->segment_row(segment).is_mapped.store(1);
  EXPECT_FALSE(tests::put_in_ring(tier, "/ahead", std::string(k_late_bytes, 'y')));
  std::fill_n(data, k_late_bytes, std::byte{'z'});
  ASSERT_TRUE(tests::publish(tier, std::move(*room), tests::content_for("/slow", k_late_bytes)));
  EXPECT_EQ(tests::bytes_of(*tests::find(tier, "/slow")), std::string(k_late_bytes, 'z'));
  EXPECT_TRUE(ring.came_too_late());
  *room = {};
  EXPECT_FALSE(ring.came_too_late());
}

TEST(LateRings, SkipRuns) {
  tests::TestRegion region{32 * k_mib};
  RamTier tier{*region};
  std::vector<std::string> runs;
  for (int i = 0; i < 100; ++i) {
    const std::string path = "/run/" + std::to_string(i);
    if (tests::put(tier, path, std::string(3 * k_mib, 'r'))) runs.push_back(path);
  }
  ASSERT_GT(runs.size(), 3U);
  for (int i = 0; tests::put(tier, "/small/" + std::to_string(i), std::string(k_late_bytes, 'x'));
       ++i)
    continue;
  tier.release_lease();
  tier.ring().make(8 * k_mib);
  for (int i = 0;
       tests::put_in_ring(tier, "/ahead/" + std::to_string(i), std::string(k_late_bytes, 'y')); ++i)
    continue;
  for (const auto& path : runs) {
    const Pin pin = tests::find(tier, path);
    ASSERT_TRUE(pin) << path;
    EXPECT_EQ(tests::bytes_of(*pin), std::string(3 * k_mib, 'r')) << path;
  }
}

// Here a mapping is known only by its address, like one that a child has inherited.
TEST(LateRings, ConcurrentReadersMappingsAndLeaderSeeRightBytes) {
  LateRing late(64 * k_mib, 16 * k_mib);
  constexpr std::size_t k_files = 1000, k_readers = 3;
  std::atomic<bool> over{false};
  std::atomic<int> wrong{0};
  std::atomic<std::size_t> ready{0};
  std::vector<std::thread> readers;
  for (std::size_t r = 0; r < k_readers; ++r) {
    readers.emplace_back([&, r] {
      RamTier own(*late.region);
      std::vector<std::pair<std::string, std::string_view>> mapped;
      const auto map = [&](const Pin& pin) {
        if (own.ring().holds(*pin)) return;
        own.ring().note_mapped(*pin);
        mapped.emplace_back(pin->path(), tests::bytes_of(*pin));
      };
      // Maps files in the segments that would join first, and then anywhere.
      for (std::size_t i = 0; i < 3; ++i)
        map(tests::find(own, late.resident[late.resident.size() - 1 - r - i * k_most_of_one]));
      ready.fetch_add(1);
      for (std::size_t i = r; !over.load(); i = (i + 17) % late.resident.size()) {
        const std::string& path = late.resident[i];
        const Pin pin = tests::find(own, path);
        if (!pin) continue;
        if (i % 64 == r && mapped.size() < 8) map(pin);
        wrong += tests::bytes_of(*pin) == late_content(path) ? 0 : 1;
      }
      for (const auto& [path, bytes] : mapped) wrong += bytes == late_content(path) ? 0 : 1;
    });
  }
  while (ready.load() < k_readers) std::this_thread::yield();
  for (std::size_t i = 0; i < k_files; ++i) {
    while (!late.put_next()) {
      for (const auto& path : late.ahead) tests::open_right(late.tier, path, late_content(path));
      std::this_thread::yield();
    }
  }
  over.store(true);
  for (auto& reader : readers) reader.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_GT(late.joined(), 0U);
  EXPECT_LE(late.joined(), 8U);
  EXPECT_EQ(tests::counters_of(*late.region), "right");
}

}  // namespace
}  // namespace cube::cache
