// Blocks of large files that are shared with other nodes: which blocks are found, how often, and
// with which bytes.
#include "cache/tier/shared/cluster_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/blocks.h"

namespace cube::cache {
namespace {

using tests::BlockFile;

constexpr std::uint64_t k_block = 64 << 10;

// 2 MiB segments, each for one chunk.
struct ClusterBlocksTest : testing::Test {
  tests::TestRegion region{40 * tests::k_mib};
  BlockFile file{"/mnt/large", 2 * k_chunk_bytes + 3 * k_block + 12'345};
  Chunks chunks{*region};
  ClusterBlocks own{*region, k_block};

  ClusterBlocksTest() { own.begin(); }
  ~ClusterBlocksTest() override { own.leave(); }
  void bring(std::uint64_t number) { file.bring_block(*region, {k_block, number}); }
  // The numbers of all blocks that the walk finds, each of which must hold the file's bytes.
  std::vector<std::uint64_t> all() {
    std::vector<std::uint64_t> numbers;
    while (own.next()) {
      const ClusterBlocks::Found& found = own.found();
      const std::uint64_t number =
          std::stoull(std::string(found.name.substr(found.name.rfind('/') + 1)));
      const std::string_view bytes(reinterpret_cast<const char*>(found.bytes.data()),
                                   found.bytes.size());
      EXPECT_EQ(bytes, file.bytes_of({k_block, number})) << number;
      EXPECT_EQ(found.path, file.path);
      EXPECT_TRUE(found.stat.is_unchanged_since(file.stat));
      EXPECT_EQ(found.name, BlockName(file.path, {k_block, number}).text());
      numbers.push_back(number);
      own.end();
    }
    std::ranges::sort(numbers);
    return numbers;
  }
  using Numbers = std::vector<std::uint64_t>;
};

TEST_F(ClusterBlocksTest, FindsEachCompletedBlockOnce) {
  EXPECT_FALSE(own.next());
  for (const std::uint64_t number : {3, 4, 40}) bring(number);
  EXPECT_EQ(all(), Numbers({3, 4, 40}));
  EXPECT_EQ(all(), Numbers());
  bring(5);
  EXPECT_EQ(all(), Numbers({5}));
  // The next leader walks over all chunks, and has nothing to do.
  ClusterBlocks next(*region, k_block);
  next.begin();
  EXPECT_FALSE(next.next());
  bring(6);
  EXPECT_TRUE(next.next());
  next.leave();
}

TEST_F(ClusterBlocksTest, FindsTheLastBlockButNoPartialBlock) {
  const std::uint64_t last = file.blocks(k_block) - 1;
  bring(last);
  const auto claim = file.bring(*region, 0, Chunks::k_page_bytes);
  chunks.note_whole(claim);
  EXPECT_EQ(all(), Numbers({last}));
}

TEST_F(ClusterBlocksTest, SkipsBlocksThatAreSharedOrHaveNoName) {
  bring(3);
  bring(4);
  chunks.note_shared(chunks.find(file.key, 0), pages_of(3 * k_block, 4 * k_block));
  EXPECT_EQ(all(), Numbers({4}));
  BlockFile nameless("/mnt/nameless", k_chunk_bytes);
  chunks.note_whole(nameless.bring(*region, 0, k_block));
  EXPECT_EQ(all(), Numbers());
  // A block that the disk has may be shared.
  bring(5);
  chunks.note_offered(chunks.find(file.key, 0), pages_of(5 * k_block, 6 * k_block));
  EXPECT_EQ(all(), Numbers({5}));
}

// Other nodes wait for this block, so it is looked up by its file, independently of the walk.
TEST_F(ClusterBlocksTest, FindsAWantedBlockOnce) {
  ClusterBlocks wanted(*region, k_block);
  EXPECT_FALSE(wanted.find(file.key, 3 * k_block)) << "it is not there";
  bring(3);
  const auto part = file.bring(*region, k_chunk_bytes, k_chunk_bytes + Chunks::k_page_bytes);
  EXPECT_FALSE(wanted.find(file.key, k_chunk_bytes)) << "a part of it is there";
  EXPECT_FALSE(wanted.find(file.key, file.stat.size / k_block * k_block + k_block))
      << "it is past the end";
  for (const bool is_put_off : {true, false}) {
    ASSERT_TRUE(wanted.find(file.key, 3 * k_block));
    EXPECT_EQ(wanted.found().name, BlockName(file.path, {k_block, 3}).text());
    const std::string_view bytes(reinterpret_cast<const char*>(wanted.found().bytes.data()),
                                 wanted.found().bytes.size());
    EXPECT_EQ(bytes, file.bytes_of({k_block, 3}));
    wanted.end(is_put_off);
    wanted.leave();
  }
  EXPECT_FALSE(wanted.find(file.key, 3 * k_block)) << "it was shared";
  EXPECT_EQ(all(), Numbers());
}

TEST_F(ClusterBlocksTest, NextLeaderFindsAnUnfinishedBlock) {
  bring(3);
  ASSERT_TRUE(own.next());
  own.leave();
  own.begin();
  EXPECT_EQ(all(), Numbers({3}));
}

TEST_F(ClusterBlocksTest, FindsAPostponedBlockAgainAfterAWhile) {
  bring(3);
  bring(4);
  ASSERT_TRUE(own.next());
  own.end(/*is_put_off=*/true);
  EXPECT_EQ(all(), Numbers({4}));
  Numbers later;
  const std::uint64_t began = base::coarse_monotonic_ns();
  while (later.empty() && base::coarse_monotonic_ns() - began < 60 * 1'000'000'000ULL)
    later = all();
  EXPECT_EQ(later, Numbers({3}));
  EXPECT_GE(base::coarse_monotonic_ns() - began, 900'000'000U)
      << "not at once, while the server may still be away";
}

TEST_F(ClusterBlocksTest, AChunkStaysWhileABlockIsOffered) {
  bring(0);
  ASSERT_TRUE(own.next());
  // Other files need all places, but this chunk is pinned.
  for (int i = 0; i < 40; ++i) {
    const BlockFile other("/mnt/other" + std::to_string(i), k_chunk_bytes);
    auto claim = chunks.make(other.key, 0, Chunks::k_none, Chunks::Pass::must_pass);
    if (!claim) continue;
    const auto window = chunks.window(claim, {0, 16});
    ASSERT_TRUE(window);
    std::memset(window->data(), 0xaa, 16 * Chunks::k_page_bytes);
  }
  const std::string_view bytes(reinterpret_cast<const char*>(own.found().bytes.data()),
                               own.found().bytes.size());
  EXPECT_EQ(bytes, file.bytes_of({k_block, 0}));
}

TEST_F(ClusterBlocksTest, FindsAnotherFileInThePlaceOfAChunk) {
  bring(0);
  EXPECT_EQ(all(), Numbers({0}));
  chunks.forget(file.key, 0);
  FileStat later = file.stat;
  later.changed.seconds += 1;
  BlockFile next = file;
  next.stat = later;
  next.key = key_of_file(next.path, later);
  next.bring_block(*region, {k_block, 0});
  file = next;
  EXPECT_EQ(all(), Numbers({0}));
}

TEST_F(ClusterBlocksTest, FindsNothingIfBlocksAreOff) {
  bring(0);
  ClusterBlocks none(*region, 0);
  none.begin();
  EXPECT_FALSE(none.next());
}

}  // namespace
}  // namespace cube::cache
