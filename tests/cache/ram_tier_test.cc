// Records in the shared region: reserve, fill in, publish, find.
#include "cache/region/ram/ram_tier.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <vector>

#include "cache/region/segments.h"
#include "tests/cache/ram_tier_fixture.h"
#include "tests/support/child.h"

namespace cube::cache {
namespace {

using tests::k_mib;
using tests::put;
using tests::TestRegion;

TEST_F(RamTierTest, FindsPublishedRecords) {
  for (const std::size_t size : {0, 1, 100, 4096, 32767, 32768, 100'000, 900'000}) {
    const std::string path = "/data/" + std::to_string(size);
    const std::string data = tests::content_of(path, 1, size);
    ASSERT_TRUE(put(tier, path, data));
    const Pin pin = tests::find(tier, path);
    ASSERT_TRUE(pin) << size;
    EXPECT_EQ(pin->path(), path);
    EXPECT_EQ(tests::bytes_of(*pin), data);
    EXPECT_TRUE(tests::is_sound(*region, *pin));
    if (pin->is_mappable()) {
      EXPECT_EQ(region->offset_of(pin->data()) % k_page, 0U);
    }
  }
  EXPECT_FALSE(tests::find(tier, "/data/none"));
  EXPECT_FALSE(tests::find(tier, ""));
  EXPECT_EQ(region->header().records.load(), 8U);
}

TEST_F(RamTierTest, APinIsCountedAsLongAsItLives) {
  {
    const auto published = put(tier, "/a", "x");
    ASSERT_TRUE(published);
    EXPECT_EQ(own_pins(), 1U);
    const Pin second = tests::find(tier, "/a");
    const Pin third = second.duplicate();
    EXPECT_EQ(own_pins(), 3U);
    EXPECT_FALSE(tests::find(tier, "/other"));
    EXPECT_EQ(own_pins(), 3U);
  }
  EXPECT_EQ(own_pins(), 0U);
}

TEST_F(RamTierTest, AnAbandonedReservationIsUndone) {
  ASSERT_TRUE(put(tier, "/a", "x"));
  const std::uint32_t before = fill();
  {
    const auto room = tier.reserve(10, 5000);
    ASSERT_TRUE(room);
    EXPECT_GT(fill(), before);
  }
  EXPECT_EQ(fill(), before);
  {
    auto first = tier.reserve(10, 5000);
    const auto second = tier.reserve(10, 5000);
    const std::uint32_t both = fill();
    { const auto gone = std::move(first); }
    EXPECT_EQ(fill(), both) << "the second still lies there; a hole is no harm";
  }
  ASSERT_TRUE(put(tier, "/b", "y"));
  EXPECT_EQ(tests::bytes_of(*tests::find(tier, "/a")), "x");
}

TEST_F(RamTierTest, ReservationsDoNotOverlap) {
  std::vector<RamTier::Reservation> rooms;
  for (int i = 0; i < 20; ++i) {
    auto room = tier.reserve(5, 40'000);
    ASSERT_TRUE(room);
    std::memset(room->data(), i, 40'000);
    rooms.push_back(std::move(*room));
  }
  for (int i = 0; i < 20; ++i) {
    const std::string path = "/f" + std::to_string(i + 100);
    ASSERT_TRUE(tests::publish(tier, std::move(rooms[static_cast<std::size_t>(i)]),
                               tests::content_for(path, 40'000)));
  }
  for (int i = 0; i < 20; ++i) {
    const Pin pin = tests::find(tier, "/f" + std::to_string(i + 100));
    ASSERT_TRUE(pin);
    EXPECT_EQ(tests::bytes_of(*pin), std::string(40'000, static_cast<char>(i)));
  }
}

// The rest of a segment may belong to another process by the time the reservation is given up.
TEST_F(RamTierTest, AbandonedReservationLeavesTheFillOfANewOwnerAlone) {
  {
    auto room = tier.reserve(10, 5000);
    ASSERT_TRUE(room);
    tier.release_lease();
    const std::uint32_t before = fill();
    const int status = tests::run_in_child([&] {
      Region* const mine = tests::attach(region.options);
      CHILD_CHECK(mine != nullptr);
      RamTier other(*mine);
      CHILD_CHECK(*lease_segment(*mine, 1000) ==
                  0);  // it has read the fill and is about to write after it
      raise(SIGKILL);
      return 0;
    });
    ASSERT_EQ(status, -SIGKILL);
    *room = RamTier::Reservation();
    EXPECT_EQ(fill(), before);
  }
}

TEST_F(RamTierTest, PathsWithTheSameHashAreDistinguished) {
  ASSERT_TRUE(put(tier, "/a", "right"));
  EXPECT_FALSE(tier.find("/b", base::hash_path("/a")));
  EXPECT_FALSE(tier.find("/aa", base::hash_path("/a")));
  EXPECT_FALSE(tier.find("", base::hash_path("/a")));
  EXPECT_EQ(own_pins(), 0U);
}

TEST_F(RamTierTest, RecordOfAReusedSegmentIsNeitherFoundNorPinned) {
  ASSERT_TRUE(put(tier, "/a", "x"));
  auto& word = region->segment_row(0).word;
  const SegmentWord before = SegmentWord::of_word(word.load());
  for (const SegmentWord after :
       {SegmentWord{SegmentState::open, before.owner, before.generation + 1},
        SegmentWord{SegmentState::evicting, before.owner, before.generation},
        SegmentWord{SegmentState::free, before.owner, before.generation}}) {
    word.store(after.as_word());
    EXPECT_FALSE(tests::find(tier, "/a"));
    EXPECT_EQ(own_pins(), 0U);
  }
  word.store(before.as_word());
  EXPECT_TRUE(tests::find(tier, "/a"));
}

TEST_F(RamTierTest, PathsWithTheSameTagAreDistinguished) {
  std::vector<std::string> paths;
  for (int i = 0; i < 3000; ++i) paths.push_back("/dir/" + std::to_string(i));
  for (const auto& path : paths) ASSERT_TRUE(put(tier, path, path));
  for (const auto& path : paths) {
    const Pin pin = tests::find(tier, path);
    ASSERT_TRUE(pin);
    ASSERT_EQ(tests::bytes_of(*pin), path);
  }
}

TEST_F(RamTierTest, RegionWithoutItsFileTakesNoSegmentButStillFindsRecords) {
  ASSERT_TRUE(put(tier, "/a", "x"));
  tier.release_lease();
  unlink(region.path().c_str());
  EXPECT_FALSE(tier.reserve(10, 3 * k_mib));
  EXPECT_TRUE(tests::find(tier, "/a"));
}

TEST_F(RamTierTest, WithoutAFreeFdNoSegmentsAreLost) {
  ASSERT_TRUE(put(tier, "/a", std::string(9000, 'x')));
  const auto free_segments = [&] {
    int n = 0;
    for (std::uint32_t i = 0; i < region->layout().segment_count; ++i) {
      n += SegmentWord::of_word(region->segment_row(i).word.load()).state == SegmentState::free ? 1
                                                                                                : 0;
    }
    return n;
  };
  const int before = free_segments();
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit none{0, limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  EXPECT_FALSE(tier.reserve(10, 3 * k_mib));
  EXPECT_FALSE(tier.reserve(10, region->layout().segment_bytes - 10'000));
  setrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(free_segments(), before);
  EXPECT_TRUE(tier.reserve(10, 3 * k_mib));
}

TEST_F(RamTierTest, ARecordLargerThanASegmentIsWhole) {
  const std::string data = tests::content_of("/big", 1, 5 * k_mib + 123);
  ASSERT_TRUE(put(tier, "/small", "s"));
  ASSERT_TRUE(put(tier, "/big", data));
  ASSERT_TRUE(put(tier, "/small2", "s2"));
  const Pin pin = tests::find(tier, "/big");
  ASSERT_TRUE(pin);
  EXPECT_TRUE(tests::bytes_of(*pin) == data);
  EXPECT_TRUE(tests::is_sound(*region, *pin));
  EXPECT_EQ(tests::bytes_of(*tests::find(tier, "/small")), "s");
  EXPECT_EQ(tests::bytes_of(*tests::find(tier, "/small2")), "s2");
  EXPECT_EQ(tier.mark_stale("/big"), 1U);
}

TEST_F(RamTierTest, RecordsAroundTheSegmentsSizeAllFit) {
  for (int delta = -9000; delta <= 9000; delta += 1500) {
    TestRegion own;
    const std::uint64_t size = own->layout().segment_bytes + static_cast<std::uint64_t>(delta);
    RamTier mine(*own);
    const std::string data = tests::content_of("/x", size, size);
    ASSERT_TRUE(put(mine, "/x", data)) << size;
    EXPECT_TRUE(tests::bytes_of(*tests::find(mine, "/x")) == data) << size;
  }
}

TEST_F(RamTierTest, AbandonedRunBecomesFree) {
  for (int i = 0; i < 10; ++i) {
    const auto room = tier.reserve(10, 8 * k_mib);
    ASSERT_TRUE(room) << i;
  }
}

}  // namespace
}  // namespace cube::cache
