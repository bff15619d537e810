// Blocks of large files that are offered to the tiers: which blocks are offered, how often, and the
// state after an error.
#include "cache/tier/block_writer.h"

#include <gtest/gtest.h>

#include "cache/region/lanes.h"
#include "cache/region/segments.h"
#include "cache/tier/disk_tier.h"
#include "tests/support/blocks.h"
#include "tests/support/temp_dir.h"

namespace cube::cache {
namespace {

using tests::BlockFile;
using tests::MapTier;

constexpr std::uint64_t k_block = 64 << 10;
constexpr bool always() { return true; }
constexpr void no_step() {}

// 2 MiB segments, each for one chunk.
struct BlockWriterTest : testing::Test {
  tests::TestRegion region{40 * tests::k_mib};
  MapTier tier;
  Tiers tiers;
  BlockFile file{"/mnt/large", 2 * k_chunk_bytes + 3 * k_block + 12'345};
  Chunks chunks{*region};

  BlockWriterTest() { tiers.add(tier); }
  BlockWriter writer(std::uint64_t block = k_block) { return {*region, tiers, block}; }
  void bring(std::uint64_t number) { file.bring_block(*region, {k_block, number}); }
  bool has(std::uint64_t number) const {
    const BlockPlace place{k_block, number};
    const auto found = tier.records.find(BlockName(file.path, place).text());
    return found != tier.records.end() && found->second == file.bytes_of(place);
  }
};

TEST_F(BlockWriterTest, WholeBlocksAreOfferedOnce) {
  BlockWriter own = writer();
  for (const std::uint64_t number : {3, 4, 40}) bring(number);
  EXPECT_EQ(own.left(), 2U) << "chunks";
  int steps = 0;
  ASSERT_TRUE(own.pass(always, [&] { ++steps; }));
  EXPECT_TRUE(has(3) && has(4) && has(40));
  EXPECT_EQ(tier.offered, 3U);
  EXPECT_EQ(steps, 2);
  EXPECT_EQ(own.left(), 0U);
  ASSERT_TRUE(own.pass(always, no_step));
  EXPECT_EQ(tier.offered, 3U);
  // Another block of a chunk becomes whole after the first blocks have been offered.
  bring(5);
  ASSERT_TRUE(own.pass(always, no_step));
  EXPECT_TRUE(has(5));
  EXPECT_EQ(tier.offered, 4U);
}

TEST_F(BlockWriterTest, LastBlockEndsWithTheFile) {
  const std::uint64_t last = file.blocks(k_block) - 1;
  bring(last);
  ASSERT_TRUE(writer().pass(always, no_step));
  EXPECT_TRUE(has(last));
  EXPECT_EQ(tier.records.begin()->second.size(), 12'345U);
}

TEST_F(BlockWriterTest, PartOfABlockIsNotOffered) {
  bring(0);
  const std::uint64_t last = file.blocks(k_block) - 1;
  // One page is missing from each of two blocks in the chunk that has a whole block, and from the
  // last block.
  file.bring(*region, k_block + Chunks::k_page_bytes, 2 * k_block);
  file.bring(*region, 2 * k_block, 3 * k_block - Chunks::k_page_bytes);
  bring(last - 1);
  file.bring(*region, last * k_block, last * k_block + 12'288);
  ASSERT_TRUE(writer().pass(always, no_step));
  EXPECT_TRUE(has(0) && has(last - 1));
  EXPECT_EQ(tier.offered, 2U);
}

TEST_F(BlockWriterTest, BlockThatCameFromATierIsNotOffered) {
  bring(0);
  bring(1);
  chunks.note_offered(chunks.find(file.key, 0), pages_of(k_block, 2 * k_block));
  ASSERT_TRUE(writer().pass(always, no_step));
  EXPECT_TRUE(has(0));
  EXPECT_EQ(tier.offered, 1U);
}

TEST_F(BlockWriterTest, BlockWithoutANameIsSkipped) {
  const BlockFile nameless("/mnt/nameless", k_chunk_bytes);
  chunks.note_whole(nameless.bring(*region, 0, k_block));
  bring(0);
  // Makes a chunk for another version of a file that already has a chunk.
  FileStat changed = file.stat;
  changed.modified.seconds += 1;
  const auto claim = chunks.make(key_of_file(file.path, changed), 1, Chunks::k_none);
  chunks.note_present(claim, {0, 512});
  chunks.note_whole(claim);
  BlockWriter own = writer();
  EXPECT_EQ(own.left(), 3U);
  ASSERT_TRUE(own.pass(always, no_step));
  EXPECT_TRUE(has(0));
  EXPECT_EQ(tier.offered, 1U);
  EXPECT_EQ(own.left(), 0U) << "nobody must wait for what is never written";
}

TEST_F(BlockWriterTest, ForgottenChunkIsNotOffered) {
  bring(0);
  bring(33);
  chunks.forget(file.key, 0);
  ASSERT_TRUE(writer().pass(always, no_step));
  EXPECT_TRUE(has(33));
  EXPECT_EQ(tier.offered, 1U);
}

TEST_F(BlockWriterTest, ErrorLeavesTheOfferToALaterPass) {
  bring(0);
  bring(33);
  BlockWriter own = writer();
  const std::uint32_t ended = chunks.offers_ended();
  tier.error = ENOSPC;
  int steps = 0;
  const auto failed = own.pass(always, [&] { ++steps; });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().value, ENOSPC);
  EXPECT_EQ(steps, 0);
  EXPECT_EQ(own.left(), 2U);
  EXPECT_EQ(chunks.offers_ended(), ended);
  EXPECT_EQ(tier.offered, 0U);
  ASSERT_TRUE(own.pass(always, no_step));
  EXPECT_TRUE(has(0) && has(33));
  EXPECT_EQ(tier.offered, 2U);
  EXPECT_EQ(own.left(), 0U);
  EXPECT_EQ(chunks.offers_ended(), ended + 2);
  EXPECT_EQ(pins_of(*region, region->own_slot()), 0U);
}

TEST_F(BlockWriterTest, BlockCompletedDuringAPassIsLeftToTheNext) {
  bring(0);
  BlockWriter own = writer();
  bool is_first = true;
  tier.during_offer = [&] {
    if (std::exchange(is_first, false)) bring(1);
  };
  ASSERT_TRUE(own.pass(always, no_step));
  EXPECT_EQ(tier.offered, 1U);
  EXPECT_EQ(own.left(), 1U);
  ASSERT_TRUE(own.pass(always, no_step));
  EXPECT_TRUE(has(0) && has(1));
  EXPECT_EQ(tier.offered, 2U);
  EXPECT_EQ(own.left(), 0U);
}

TEST_F(BlockWriterTest, ChunkIsPinnedWhileItIsOffered) {
  bring(33);
  const std::uint32_t segment =
      chunks.find(file.key, 1).place() / region->layout().chunks_of_segment();
  bool is_claimed = false;
  tier.during_offer = [&] { is_claimed = pins_of(*region, region->own_slot(), segment) != 0; };
  ASSERT_TRUE(writer().pass(always, no_step));
  EXPECT_EQ(tier.offered, 1U);
  EXPECT_TRUE(is_claimed);
}

TEST_F(BlockWriterTest, PassEndsOnRequest) {
  for (const std::uint64_t number : {0, 33, 65}) bring(number);
  BlockWriter own = writer();
  int steps = 0;
  ASSERT_TRUE(own.pass([&] { return steps < 2; }, [&] { ++steps; }));
  EXPECT_EQ(tier.offered, 2U);
  EXPECT_EQ(own.left(), 1U);
  // The writer of a cache that serves no blocks.
  BlockWriter none = writer(0);
  EXPECT_EQ(none.left(), 0U);
  ASSERT_TRUE(none.pass(always, no_step));
  EXPECT_EQ(tier.offered, 2U);
}

// Blocks of all sizes are written to the disk and read back.
class BlockSizes : public testing::TestWithParam<std::uint64_t> {};

TEST_P(BlockSizes, DiskReturnsWholeBlocks) {
  struct Compare final : Tier::Judge {
    const FileStat& stat;
    BlockPlace place;
    std::string bytes;
    Compare(const FileStat& of, const BlockPlace& at)
        : Judge(RecordKind::block), stat(of), place(at) {}
    Tier::Verdict judge(const Record& record) override {
      bytes = tests::bytes_of(record);
      return compare_block(record, stat, place);
    }
  };
  const std::uint64_t block = GetParam();
  const tests::TestRegion region(40 * tests::k_mib);
  const tests::TempDir disk;
  base::Config config = tests::config_for(region.options);
  config.disk_dir = disk.path();
  config.disk = {.is_percent = false, .value = 64 * tests::k_mib};
  std::string why;
  const auto opened = DiskTier::open(config, region.options.job, why);
  ASSERT_TRUE(opened) << why;
  DiskTier& tier = **opened;
  EXPECT_EQ(tier.least_bound_for_blocks(block), 0U);
  Tiers tiers;
  tiers.add(tier);
  // A path of the maximum length makes the largest records.
  const BlockFile file("/mnt/" + std::string(LargePaths::k_longest - 5, 'x'),
                       2 * k_chunk_bytes + 123'457);
  const std::uint64_t blocks = file.blocks(block);
  // All pages are present except the last page of one block. A block of one page is whole or
  // missing.
  const std::uint64_t partial = 1;
  for (std::uint64_t number = 0; number < blocks; ++number) {
    if (number != partial) file.bring_block(*region, {block, number});
  }
  if (block > Chunks::k_page_bytes) file.bring(*region, block, 2 * block - Chunks::k_page_bytes);
  BlockWriter own(*region, tiers, block);
  ASSERT_TRUE(own.pass(always, no_step));
  EXPECT_EQ(own.left(), 0U);
  EXPECT_EQ(tier.status().entries, blocks - 1);
  for (std::uint64_t number = 0; number < blocks; ++number) {
    const BlockPlace place{block, number};
    Compare judge(file.stat, place);
    ASSERT_EQ(tier.visit(BlockName(file.path, place).text(), judge), number != partial) << number;
    ASSERT_TRUE(number == partial || judge.bytes == file.bytes_of(place)) << number;
  }
  tier.end_offers();
  tests::never_freed(&tier);
}

INSTANTIATE_TEST_SUITE_P(All, BlockSizes, testing::Values(4 << 10, 64 << 10, 1 << 20, 2 << 20));

}  // namespace
}  // namespace cube::cache
