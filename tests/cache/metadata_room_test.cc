// Segments for metadata. All processes fill the same segment, and segments whose records are dead
// or unused are reclaimed.
#include "cache/region/ram/metadata_room.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>

#include "cache/region/segments.h"
#include "tests/support/child.h"
#include "tests/support/ring_files.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

using tests::Child;
using tests::k_mib;
using tests::TestRegion;

constexpr std::size_t k_listing_bytes = 60'000;
constexpr std::uint32_t k_of_a_segment = 34;
constexpr std::uint64_t k_looked_at = 1000;

struct MetadataRoomTest : testing::Test {
  TestRegion region{32 * k_mib};
  RamTier tier{*region};
  const RamTier::MetadataLimits limits{.segments = 2, .used_since_ns = k_looked_at};

  static std::string path_of(int i) { return "/data/d" + std::to_string(i); }
  static std::string bytes_of_listing(const std::string& path, int round) {
    return tests::content_of(path, static_cast<std::uint64_t>(round), k_listing_bytes);
  }
  base::Result<Pin> put(const std::string& path, int round, const RamTier::MetadataLimits& most) {
    auto room = tier.reserve_for_metadata(path.size(), k_listing_bytes, most);
    if (!room) return base::fail(room.error().value);
    bytes_of_listing(path, round).copy(reinterpret_cast<char*>(room->data()), k_listing_bytes);
    RecordContent content = tests::content_for(path, k_listing_bytes);
    content.kind = RecordKind::directory;
    content.verified_ns = k_looked_at;
    return tests::publish(tier, std::move(*room), content);
  }
  int fill() {
    int count = 0;
    while (count < 400 && put(path_of(count), 0, limits)) ++count;
    return count;
  }
  Pin find(const std::string& path) const {
    return tier.find_of_kind(RecordKind::directory, path, base::hash_path(path));
  }
  bool is_right(const std::string& path, int round = 0) const {
    const Pin pin = find(path);
    return pin && tests::bytes_of(*pin) == bytes_of_listing(path, round);
  }
  std::uint32_t segment_of(const std::string& path) {
    const Pin pin = find(path);
    return pin ? tier.place_of(*pin).segment : UINT32_MAX;
  }
};

TEST_F(MetadataRoomTest, RecordsFillAsManySegmentsAsTheLimitAllows) {
  const int count = fill();
  EXPECT_EQ(count, 2 * k_of_a_segment);
  EXPECT_EQ(tier.metadata_room().count(), 2U);
  for (int i = 0; i < count; ++i) EXPECT_TRUE(is_right(path_of(i))) << i;
  const auto more = put("/data/more", 0, limits);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().value, ENOSPC);
  EXPECT_EQ(tests::counters_of(*region), "right");
}

TEST_F(MetadataRoomTest, SegmentWhoseRecordsAreMostlyDeadIsReclaimed) {
  const int count = fill();
  const std::uint32_t first = segment_of(path_of(0)), second = segment_of(path_of(count - 1));
  int i = 0;
  for (; i <= static_cast<int>(k_of_a_segment) / 2 - 1; ++i) tier.mark_stale(path_of(i));
  EXPECT_FALSE(put("/data/more", 0, limits)) << "half of it lives";
  tier.mark_stale(path_of(i));
  tier.mark_stale(path_of(i + 1));
  ASSERT_TRUE(put("/data/more", 0, limits));
  EXPECT_EQ(segment_of("/data/more"), first);
  EXPECT_TRUE(is_right("/data/more"));
  EXPECT_FALSE(find(path_of(static_cast<int>(k_of_a_segment) - 1)))
      << "it lived, but its segment is another's now";
  EXPECT_EQ(segment_of(path_of(count - 1)), second);
  EXPECT_EQ(tier.metadata_room().count(), 2U);
  EXPECT_EQ(tests::counters_of(*region), "right");
}

// A process was killed before it wrote to its segment. The machine has been up for less than the
// time after which metadata counts as unused.
TEST_F(MetadataRoomTest, EmptySegmentIsReclaimedImmediately) {
  RamTier::MetadataLimits young = limits;
  young.used_since_ns = 0;
  fill();
  const std::uint32_t first = segment_of(path_of(0));
  ASSERT_FALSE(put("/data/more", 0, young));
  region->segment_row(first).fill.store(0);
  ASSERT_TRUE(put("/data/more", 0, young));
  EXPECT_EQ(segment_of("/data/more"), first);
}

TEST_F(MetadataRoomTest, UnusedSegmentIsReclaimed) {
  const int count = fill();
  ASSERT_TRUE(put("/data/more", 0, {.segments = 2, .used_since_ns = k_looked_at + 1}));
  EXPECT_FALSE(find(path_of(0)));
  EXPECT_TRUE(is_right(path_of(count - 1)));
}

TEST_F(MetadataRoomTest, PinnedSegmentKeepsItsBytes) {
  RamTier::MetadataLimits one = limits;
  one.segments = 1;
  ASSERT_TRUE(put(path_of(0), 0, one));
  Pin reader = find(path_of(0));
  int count = 1;
  while (put(path_of(count), 0, one)) ++count;
  EXPECT_EQ(count, static_cast<int>(k_of_a_segment));
  for (int i = 0; i < count; ++i) tier.mark_stale(path_of(i));
  EXPECT_FALSE(put("/data/more", 0, one));
  EXPECT_EQ(tests::bytes_of(*reader), bytes_of_listing(path_of(0), 0));
  reader.release();
  ASSERT_TRUE(put("/data/more", 0, one));
  EXPECT_EQ(tier.metadata_room().count(), 1U);
}

TEST_F(MetadataRoomTest, FilesAndTheRingDoNotUseMetadataSegments) {
  ASSERT_TRUE(put(path_of(0), 0, limits));
  const std::uint32_t own = segment_of(path_of(0));
  int files = 0;
  const std::string bytes(200'000, 'x');
  while (files < 400 && tests::put(tier, "/data/file" + std::to_string(files), bytes)) {
    const Pin pin = tests::find(tier, "/data/file" + std::to_string(files));
    ASSERT_NE(tier.place_of(*pin).segment, own);
    ++files;
  }
  EXPECT_GT(files, 100) << "the region is full";
  tier.mark_stale(path_of(0));
  tier.ring().make(8 * k_mib);
  std::set<std::uint32_t> joined;
  while (const auto leased = tier.ring().lease()) joined.insert(*leased);
  EXPECT_FALSE(joined.empty());
  EXPECT_FALSE(joined.contains(own));
  EXPECT_TRUE(put(path_of(1), 0, limits)) << "the rest of it is still theirs";
  EXPECT_EQ(segment_of(path_of(1)), own);
}

TEST_F(MetadataRoomTest, ReserveFailsIfNoSegmentIsFree) {
  const std::string bytes(200'000, 'x');
  for (int files = 0; files < 400 && tests::put(tier, "/data/file" + std::to_string(files), bytes);)
    ++files;
  const auto made = put(path_of(0), 0, limits);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().value, ENOMEM);
  const auto large = tier.reserve_for_metadata(10, region->layout().segment_bytes, limits);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().value, EFBIG);
}

// Each process writes its own paths repeatedly and reads the paths of all processes. A reader finds
// whole records or none.
TEST_F(MetadataRoomTest, ProcessesFillAndDropAtTheSameTime) {
  constexpr int k_writers = 3, k_paths = 6, k_rounds = 150;
  const auto work = [&](RamTier& own, int writer) {
    for (int round = 1; round <= k_rounds; ++round) {
      const std::string path = path_of(writer * k_paths + round % k_paths);
      own.mark_stale(path);
      auto room = own.reserve_for_metadata(path.size(), k_listing_bytes,
                                           {.segments = 2, .used_since_ns = 0});
      if (room) {
        bytes_of_listing(path, round).copy(reinterpret_cast<char*>(room->data()), k_listing_bytes);
        RecordContent content = tests::content_for(path, k_listing_bytes);
        content.kind = RecordKind::directory;
        content.verified_ns = static_cast<std::uint64_t>(round);
        static_cast<void>(tests::publish(own, std::move(*room), content));
      }
      for (int i = 0; i < k_writers * k_paths; ++i) {
        const Pin pin =
            own.find_of_kind(RecordKind::directory, path_of(i), base::hash_path(path_of(i)));
        if (!pin) continue;
        const auto of_round = static_cast<int>(pin->verified_ns.load());
        if (tests::bytes_of(*pin) != bytes_of_listing(path_of(i), of_round)) return 1;
      }
    }
    return 0;
  };
  std::vector<Child> writers;
  for (int i = 0; i < k_writers; ++i) {
    writers.emplace_back([&, i] {
      Region* const own = tests::attach(region.options);
      CHILD_CHECK(own != nullptr);
      RamTier mine(*own);
      const int status = work(mine, i);
      own->detach();
      return status;
    });
  }
  for (Child& writer : writers) EXPECT_EQ(writer.wait(), 0);
  EXPECT_LE(tier.metadata_room().count(), 2U + k_writers);
  ASSERT_TRUE(put("/data/more", 0, {.segments = 2, .used_since_ns = UINT64_MAX}));
  EXPECT_EQ(tests::counters_of(*region), "right");
}

}  // namespace
}  // namespace cube::cache
