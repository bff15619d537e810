// Memory that the region gives back to other users: which segments it gives back, which segments it
// keeps, and the state afterwards.
#include "cache/region/life/room_for_others.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <string>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/memory/memory_limits.h"
#include "cache/region/large/chunks.h"
#include "cache/region/segments.h"
#include "tests/support/sanitizers.h"
#include "tests/support/survivor.h"
#include "tests/support/test_region.h"
#include "tests/support/tracee.h"

namespace cube::cache {
namespace {

using tests::k_mib;

// Segments of 2 MiB, three files in each.
struct RoomForOthersTest : testing::Test {
  static constexpr std::size_t k_bytes = 600'000;

  tests::TestRegion region{16 * k_mib};
  RamTier tier{*region};
  const std::uint32_t segments = region->layout().segment_count;
  std::vector<std::string> paths;

  std::string path_of(std::size_t n) const { return "/data/" + std::to_string(n); }
  bool put(const std::string& path, std::size_t bytes = k_bytes) {
    return static_cast<bool>(tests::put(tier, path, tests::content_of(path, 0, bytes)));
  }
  void fill() {
    while (put(path_of(paths.size()))) paths.push_back(path_of(paths.size()));
    ASSERT_GT(paths.size(), 3U * segments - 6);
    // The segment that this process fills stays its own.
    tier.release_lease();
  }
  std::uint64_t allocated() const {
    struct stat st {};
    EXPECT_EQ(stat(region.path().c_str(), &st), 0);
    return static_cast<std::uint64_t>(st.st_blocks) * 512;
  }
  // Each file that is found has the right bytes.
  std::size_t found(std::size_t bytes = k_bytes) const {
    std::size_t count = 0;
    for (const auto& path : paths) {
      const Pin pin = tests::find(tier, path);
      if (!pin) continue;
      ++count;
      EXPECT_EQ(tests::bytes_of(*pin), tests::content_of(path, 0, bytes)) << path;
    }
    return count;
  }
  std::uint64_t everything() const { return UINT64_MAX; }
};

TEST_F(RoomForOthersTest, GivesBackOnlyAsMuchAsIsMissing) {
  fill();
  const std::uint64_t before = allocated();
  const std::size_t files = found();
  EXPECT_EQ(files, paths.size());
  EXPECT_EQ(give_back(*region, 3 * k_mib), 4 * k_mib) << "two segments";
  EXPECT_EQ(allocated(), before - 4 * k_mib);
  EXPECT_GE(found(), files - 6);
  EXPECT_LT(found(), files);
  EXPECT_EQ(region->header().records.load(), found());
}

TEST_F(RoomForOthersTest, GivesNothingIfAllOfItWouldNotSuffice) {
  fill();
  const auto room = base::shared_room(region.path().c_str());
  ASSERT_TRUE(room);
  EXPECT_FALSE(give_back_for(*region, room->total + k_mib));
  EXPECT_EQ(found(), paths.size());
}

TEST_F(RoomForOthersTest, GivesASegmentIfOthersUseUpTheFreeSpace) {
  fill();
  const std::uint64_t before = allocated();
  EXPECT_TRUE(give_back_for(*region, 1));
  EXPECT_EQ(allocated(), before - 2 * k_mib);
  EXPECT_FALSE(region->leaves_room_for_others(0)) << "what is given stays free for a while";
}

TEST_F(RoomForOthersTest, SegmentsAreLeasedAgainWithMemory) {
  fill();
  const std::uint64_t before = allocated();
  give_back(*region, everything());
  EXPECT_EQ(found(), 0U);
  EXPECT_LT(allocated(), before - (segments - 1) * 2 * k_mib);
  EXPECT_EQ(region->header().records.load(), 0U);
  EXPECT_EQ(region->header().used_bytes.load(), 0U);
  paths.clear();
  fill();
  EXPECT_EQ(found(), paths.size());
  EXPECT_EQ(allocated(), before);
}

TEST_F(RoomForOthersTest, EmptySegmentsGoFirst) {
  ASSERT_TRUE(put(path_of(0)));
  paths.push_back(path_of(0));
  tier.release_lease();
  ASSERT_TRUE(prepare_segment(*region, 2));
  EXPECT_EQ(give_back(*region, 1), 2 * k_mib);
  EXPECT_EQ(found(), 1U);
  EXPECT_EQ(give_back(*region, 1), 2 * k_mib);
  EXPECT_EQ(found(), 0U);
}

TEST_F(RoomForOthersTest, PinnedSegmentKeepsItsBytes) {
  fill();
  const Pin pin = tests::find(tier, paths[0]);
  ASSERT_TRUE(pin);
  give_back(*region, everything());
  EXPECT_EQ(tests::bytes_of(*pin), tests::content_of(paths[0], 0, k_bytes));
  EXPECT_EQ(found(), 3U) << "the three of its segment";
}

TEST_F(RoomForOthersTest, AMappedSegmentKeepsItsBytes) {
  fill();
  tier.ring().note_mapped(*tests::find(tier, paths[0]));
  give_back(*region, everything());
  EXPECT_EQ(found(), 3U);
}

TEST_F(RoomForOthersTest, UnreadFilesGoAfterTheRest) {
  tier.ring().make(8 * k_mib);
  const std::string ahead = "/data/ahead", data = tests::content_of(ahead, 0, k_bytes);
  {
    auto room = tier.reserve_in_ring(ahead.size(), data.size());
    ASSERT_TRUE(room);
    data.copy(reinterpret_cast<char*>(room->data()), data.size());
    auto content = tests::content_for(ahead, data.size());
    content.prefetched = true;
    ASSERT_TRUE(tests::publish(tier, std::move(*room), content));
  }
  tier.release_ring_lease();
  ASSERT_TRUE(put(path_of(0)));
  tier.release_lease();
  EXPECT_EQ(give_back(*region, 1), 2 * k_mib);
  EXPECT_TRUE(tests::find(tier, ahead));
  EXPECT_FALSE(tests::find(tier, path_of(0)));
  give_back(*region, everything());
  EXPECT_FALSE(tests::find(tier, ahead));
}

TEST_F(RoomForOthersTest, MetadataAndFilesThatWaitForTheDiskGoAfterTheRest) {
  fill();
  SegmentRow &metadata = region->segment_row(segments - 1),
             &waits = region->segment_row(segments - 2);
  metadata.holds_metadata = 1;
  for (std::uint32_t i = 0; i < segments; ++i)
    region->segment_row(i).flushed = region->segment_row(i).fresh.load();
  ++waits.fresh;
  region->header().disk_alive_ns = base::coarse_monotonic_ns() + 3'600'000'000'000;
  give_back(*region, (segments - 2) * 2 * k_mib);
  EXPECT_TRUE(metadata.has_memory.load() != 0 && waits.has_memory.load() != 0);
  give_back(*region, everything());
  EXPECT_EQ(found(), 0U);
  EXPECT_EQ(metadata.holds_metadata.load(), 0U);
}

TEST_F(RoomForOthersTest, ARunGoesAsAWholeOrStays) {
  constexpr std::size_t k_large = 5 * k_mib;
  paths = {"/data/large0", "/data/large1"};
  for (const auto& path : paths) ASSERT_TRUE(put(path, k_large));
  const std::uint64_t before = allocated();
  {
    const Pin pin = tests::find(tier, paths[1]);
    EXPECT_EQ(give_back(*region, everything()), 6 * k_mib);
    EXPECT_EQ(tests::bytes_of(*pin), tests::content_of(paths[1], 0, k_large));
  }
  EXPECT_EQ(found(k_large), 1U);
  EXPECT_EQ(allocated(), before - 6 * k_mib);
  EXPECT_EQ(give_back(*region, everything()), 6 * k_mib);
  for (const auto& path : paths) ASSERT_TRUE(put(path, k_large));
  EXPECT_EQ(found(k_large), 2U);
}

TEST_F(RoomForOthersTest, ChunksGoUnlessPinnedOrMapped) {
  constexpr FileKey k_key{1, {2, 3}};
  constexpr PageRun k_all{0, ChunkRow::k_pages};
  Chunks chunks(*region);
  for (std::uint32_t number = 0; number < 3; ++number) {
    const auto claim = chunks.make(k_key, number, Chunks::k_none);
    const auto window = chunks.window(claim, k_all);
    ASSERT_TRUE(claim && window);
    std::memset(window->data(), 'a' + static_cast<int>(number), window->size());
    chunks.note_present(claim, k_all);
    if (number == 2) claim.note_mapped();
  }
  const std::uint64_t before = allocated();
  const auto claim = chunks.find(k_key, 0);
  EXPECT_EQ(give_back(*region, everything()), k_chunk_bytes);
  EXPECT_EQ(allocated(), before - k_chunk_bytes);
  EXPECT_FALSE(chunks.find(k_key, 1));
  EXPECT_EQ(claim.data()[k_chunk_bytes - 1], std::byte{'a'});
  const auto mapped = chunks.find(k_key, 2);
  ASSERT_TRUE(mapped);
  EXPECT_EQ(mapped.data()[0], std::byte{'c'});
  EXPECT_EQ(region->header().used_bytes.load(), 2ULL * k_chunk_bytes);
  // The chunk has no page until it is fetched again.
  const auto again = chunks.make(k_key, 1, Chunks::k_none);
  ASSERT_TRUE(again);
  EXPECT_FALSE(again.has_any(k_all));
}

TEST_F(RoomForOthersTest, DeathAtAnyInstructionLosesNoSegment) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  fill();
  tests::Survivor survivor(*region);
  tests::KillCounts counts;
  const auto child_that_gives = [&] {
    return tests::Tracee([&] {
      Region* const own = tests::attach(region.options);
      CHILD_CHECK(own != nullptr);
      raise(SIGSTOP);
      give_back(*own, 1);
      raise(SIGSTOP);
      return 0;
    });
  };
  // A segment that is marked as having memory must have all of it, because a store into a hole may
  // find the file system full.
  const int file = open(region.path().c_str(), O_RDONLY | O_CLOEXEC);
  const auto claims_no_hole = [&](std::uint32_t segment) {
    const auto begin = static_cast<off_t>(region->layout().data +
                                          std::uint64_t{segment} * region->layout().segment_bytes);
    return region->segment_row(segment).has_memory.load() == 0 ||
           lseek(file, begin, SEEK_HOLE) >=
               begin + static_cast<off_t>(region->layout().segment_bytes);
  };
  const auto refill = [&] {
    for (const auto& path : paths) {
      const bool is_there = static_cast<bool>(tests::find(tier, path)) || put(path);
      ASSERT_TRUE(is_there) << path;
    }
    tier.release_lease();
  };
  long length = 0;
  {
    tests::Tracee child = child_that_gives();
    ASSERT_TRUE(child.to_stop());
    while (child.step() && !child.is_at_raise()) ++length;
    child.kill();
    survivor.check_tables(counts);
  }
  const int kills = tests::k_asan ? 8 : 20;
  int given = 0;
  for (int k = 0; k < kills; ++k) {
    refill();
    tests::Tracee child = child_that_gives();
    ASSERT_TRUE(child.to_stop());
    for (long i = 0, at = length * k / kills; i < at && child.step(); ++i) {
    }
    child.kill();
    ++counts.kills;
    survivor.check_tables(counts);
    given += found() < paths.size() ? 1 : 0;
    for (std::uint32_t segment = 0; segment < segments; ++segment)
      ASSERT_TRUE(claims_no_hole(segment)) << segment << ", " << k;
  }
  refill();
  EXPECT_EQ(found(), paths.size());
  close(file);
  counts.print("within a gift");
  std::printf("a gift has %ld instructions; a segment was gone after %d of %d kills\n", length,
              given, kills);
  EXPECT_TRUE(counts.is_clean());
  EXPECT_GT(given, 0);
  EXPECT_LT(given, kills);
}

TEST(SharedRoom, MinimumAndASixteenthStayFree) {
  using base::SharedRoom;
  EXPECT_EQ((SharedRoom{64 * k_mib, 64 * k_mib}.most_for_region(false)), 32 * k_mib);
  EXPECT_EQ((SharedRoom{64 * k_mib, 20 * k_mib}.most_for_region(false)), 0U);
  EXPECT_EQ((SharedRoom{256 * k_mib, 256 * k_mib}.most_for_region(true)), 128 * k_mib);
  EXPECT_EQ((SharedRoom{256 * k_mib, 256 * k_mib}.most_for_region(false)), 224 * k_mib);
  EXPECT_EQ((SharedRoom{16384 * k_mib, 16384 * k_mib}.most_for_region(false)), 15360 * k_mib);
}

TEST(SharedRoom, AShareTakesLittleOfASmallFileSystem) {
  using base::SharedRoom;
  EXPECT_EQ((SharedRoom{255 * k_mib, 240 * k_mib}.most_for_region(true)), 30 * k_mib);
  EXPECT_EQ((SharedRoom{128 * k_mib, 128 * k_mib}.most_for_region(true)), 16 * k_mib);
  EXPECT_EQ((SharedRoom{64 * k_mib, 64 * k_mib}.most_for_region(true)), 8 * k_mib);
  // The result is not smaller than a region needs if this leaves enough memory for others.
  EXPECT_EQ((SharedRoom{64 * k_mib, 41 * k_mib}.most_for_region(true)), 8 * k_mib);
  EXPECT_EQ((SharedRoom{64 * k_mib, 39 * k_mib}.most_for_region(true)), 7 * k_mib);
}

}  // namespace
}  // namespace cube::cache
