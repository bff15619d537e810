// A region or an index that has no room.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>

#include "cache/base/clock.h"
#include "tests/cache/ram_tier_fixture.h"
#include "tests/support/temp_dir.h"

namespace cube::cache {
namespace {

using tests::k_mib;
using tests::put;
using tests::TestRegion;

// Makes every slot that has memory name an existing record.
void fill_index(Region& region) {
  std::uint64_t living = 0;
  tests::for_each_index_slot(region,
                             [&](auto& slot) { living = slot.load() != 0 ? slot.load() : living; });
  tests::for_each_index_slot(region, [&](auto& slot) { slot.store(living); });
}
// Fills the index after all of its tables have been given memory.
void fill_whole_index(Region& region) {
  while (region.add_index_table(region.header().index_tables.load())) continue;
  fill_index(region);
}

TEST_F(RamTierTest, RecordLargerThanTheRegionIsRefusedAndOthersStillFit) {
  EXPECT_EQ(tier.reserve(10, 100 * k_mib).error().value, ENOSPC);
  EXPECT_FALSE(tier.is_full());
  EXPECT_TRUE(put(tier, "/a", "x"));
}

TEST_F(RamTierTest,
       SizesBeyondAnyMemoryAreRefused) {  // the number of segments must not be cut to 32 bits
  for (const std::uint64_t size :
       {1ULL << 40, 1ULL << 52, (1ULL << 52) + 100, static_cast<unsigned long long>(INT64_MAX),
        static_cast<unsigned long long>(UINT64_MAX - 4096)}) {
    EXPECT_FALSE(tier.reserve(10, size)) << size;
  }
}

TEST_F(RamTierTest, FullRegionKeepsItsRecords) {
  const std::string data(50'000, 'x');
  int n = 0;
  while (put(tier, "/f" + std::to_string(n), data)) ++n;
  EXPECT_TRUE(tier.is_full());
  const double used =
      n * 50'000.0 / static_cast<double>(region->layout().file_bytes - region->layout().data);
  EXPECT_GT(used, 0.85);
  std::printf("files of 50,000 bytes fill %.1f %% of a small region\n", 100 * used);
  for (int i = 0; i < n; ++i) {
    const Pin pin = tests::find(tier, "/f" + std::to_string(i));
    ASSERT_TRUE(pin);
    ASSERT_EQ(tests::bytes_of(*pin), data);
  }
}

TEST(RamTier, TakesSmallFilesUntilItsMemoryIsUsedUp) {
  const TestRegion region(64 * k_mib);
  RamTier tier(*region);
  const std::string data(200, 'x');
  int n = 0;
  while (put(tier, "/mnt/dataset/labels/" + std::to_string(1'000'000 + n) + ".txt", data)) ++n;
  const double used =
      static_cast<double>(region->header().used_bytes.load()) / static_cast<double>(64 * k_mib);
  std::printf("%d files of 200 bytes use %.1f %% of a region of 64 MiB\n", n, 100 * used);
  EXPECT_GT(used, 0.85);
  for (int i = 0; i < n; i += 1000)
    EXPECT_TRUE(tests::find(tier, "/mnt/dataset/labels/" + std::to_string(1'000'000 + i) + ".txt"));
}

TEST_F(RamTierTest, ALargeFileThatDoesNotFitLeavesRoomForSmallOnes) {
  const std::string data(400'000, 'x');
  int n = 0;
  while (put(tier, "/f" + std::to_string(n), data)) ++n;
  ASSERT_TRUE(put(tier, "/small", "fits into what is left of the segment"));
  EXPECT_FALSE(tier.is_full()) << "the file cache does not even try when this is set";
}

// The places of dead records must be reused. Otherwise, the index would stay full forever.
TEST_F(RamTierTest, DeadRecordsOfAnyNameMakeRoomInAFullIndex) {
  ASSERT_TRUE(put(tier, "/dead", "x"));
  fill_whole_index(*region);
  tier.mark_record_stale(*reinterpret_cast<const Record*>(region->segment(0)));
  ASSERT_TRUE(put(tier, "/f", "y"));
  EXPECT_TRUE(tests::find(tier, "/f"));
  EXPECT_FALSE(tier.is_full());
  EXPECT_EQ(own_pins(), 0U);
}

TEST_F(RamTierTest, AFullIndexIsAnErrorThatUndoesTheReservation) {
  ASSERT_TRUE(put(tier, "/f0", "x"));
  fill_whole_index(*region);
  const auto pin = put(tier, "/f1", "x");
  ASSERT_FALSE(pin);
  EXPECT_EQ(pin.error().value, ENOSPC);
  EXPECT_EQ(own_pins(), 0U);
  EXPECT_EQ(region->header().records.load(), 1U);
  EXPECT_TRUE(tier.is_full());
  EXPECT_EQ(region->header().index_full.load(), RegionHeader::k_for_good);
}

// If /dev/shm has no room when the index must grow, caching does not stop forever.
TEST(RamTier, IndexWithoutMemoryIsTriedAgainLater) {
  const tests::TmpfsMount mount("64m");
  if (!mount.is_mounted()) GTEST_SKIP() << "no right to mount";
  const TestRegion region(16 * k_mib, mount.path());
  RamTier tier(*region);
  ASSERT_TRUE(put(tier, "/f0", "x"));
  fill_index(*region);
  mount.fill();
  EXPECT_FALSE(put(tier, "/f1", "x"));
  EXPECT_TRUE(tier.is_full()) << "what is fetched now would be fetched in vain";
  EXPECT_NE(region->header().index_full.load(), RegionHeader::k_for_good);
  unlink((mount.path() + "/filler").c_str());
  region->header().index_full.store(
      static_cast<std::uint32_t>(base::coarse_monotonic_ns() / 1'000'000'000ULL));  // it is over
  EXPECT_FALSE(tier.is_full());
  EXPECT_TRUE(put(tier, "/f1", "x"));
  EXPECT_TRUE(tests::find(tier, "/f1"));
}

}  // namespace
}  // namespace cube::cache
