// The places of chunks in the region: which chunk gets which place, which chunks are found, and the
// state after the death of a process.
#include "cache/region/large/chunks.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "cache/base/memory/memory_limits.h"
#include "cache/base/unique_fd.h"
#include "cache/region/segments.h"
#include "tests/support/child.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

constexpr FileKey k_file{1, {2, 3}}, k_other{4, {5, 6}}, k_next_version{1, {7, 8}};

// 2 MiB segments, each for one chunk.
struct ChunksTest : testing::Test {
  tests::TestRegion region{24 * tests::k_mib};
  Chunks chunks{*region};

  std::uint32_t places() const {
    return resident_segments(*region) * region->layout().chunks_of_segment();
  }
  void fill(const Chunks::Claim& claim, const PageRun& pages, char with) {
    const auto window = chunks.window(claim, pages);
    ASSERT_TRUE(window);
    std::memset(window->data(), with, pages.count() * Chunks::k_page_bytes);
    chunks.note_present(claim, pages);
  }
  void fill_region(const FileKey& key) {
    for (std::uint32_t number = 0; number < places(); ++number)
      ASSERT_TRUE(chunks.make(key, number, Chunks::k_none)) << number;
  }
  SegmentWord word(std::uint32_t place) const {
    return SegmentWord::of_word(region->chunk_row(place).word.load());
  }
  void set_word(std::uint32_t place, SegmentState state, std::uint32_t owner) const {
    region->chunk_row(place).word.store(
        SegmentWord{state, owner, word(place).generation}.as_word());
  }
};

TEST_F(ChunksTest, ChunkIsFoundWithThePagesThatArePresent) {
  EXPECT_FALSE(chunks.find(k_file, 0));
  fill(chunks.make(k_file, 3, Chunks::k_none), {5, 7}, 'x');
  const auto found = chunks.find(k_file, 3);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found.present_from(0, 512).is_empty());
  EXPECT_EQ(found.absent_from(0, 512).end, 5U);
  EXPECT_EQ(found.present_from(5, 512).end, 7U);
  EXPECT_EQ(found.absent_from(7, 512).end, 512U);
  EXPECT_EQ(static_cast<char>(found.data()[5 * Chunks::k_page_bytes]), 'x');
  EXPECT_FALSE(chunks.find(k_file, 2));
  EXPECT_FALSE(chunks.find(k_next_version, 3));
}

TEST_F(ChunksTest, PrefetchedPagesAreTakenOnce) {
  const auto claim = chunks.make(k_file, 0, Chunks::k_none);
  chunks.note_ahead(claim, {60, 70});
  fill(claim, {60, 70}, 'a');
  EXPECT_EQ(figures_of_chunks(*region).unread, 10 * Chunks::k_page_bytes);
  EXPECT_EQ(figures_of_chunks(*region).bytes, 10 * Chunks::k_page_bytes);
  EXPECT_EQ(claim.take_unread({0, 60}), 0U);
  EXPECT_EQ(claim.take_unread({0, 63}), 3U);
  EXPECT_EQ(claim.take_unread({62, 512}), 7U);
  EXPECT_EQ(claim.take_unread({0, 512}), 0U);
  EXPECT_EQ(figures_of_chunks(*region).unread, 0U);
}

TEST_F(ChunksTest, UnreadPagesOfADroppedChunkCountAsWasted) {
  const auto wasted = [&] {
    return region->own_process()
        .stats.counters[static_cast<std::size_t>(base::Counter::block_wasted)]
        .load();
  };
  fill_region(k_file);
  for (std::uint32_t number = 0; number < places(); ++number) {
    const auto claim = chunks.find(k_file, number);
    chunks.note_ahead(claim, {0, 4});
    fill(claim, {0, 4}, 'a');
    EXPECT_EQ(claim.take_unread({1, 2}), 1U);
  }
  EXPECT_EQ(wasted(), 0U);
  ASSERT_TRUE(chunks.make(k_next_version, 0, Chunks::k_none));
  EXPECT_EQ(wasted(), 3 * Chunks::k_page_bytes);
  EXPECT_EQ(figures_of_chunks(*region).unread, (places() - 1) * 3 * Chunks::k_page_bytes);
}

TEST_F(ChunksTest, WithoutAChunkAllPagesAreAbsent) {
  const Chunks::Claim none;
  EXPECT_EQ(none.absent_from(3, 9).end, 9U);
  EXPECT_EQ(none.next_absent({3, 9}).first, 3U);
  EXPECT_TRUE(none.next_present(3, 9).is_empty());
  EXPECT_FALSE(none.has_any({3, 9}));
  EXPECT_FALSE(none.has_all({3, 9}));
}

TEST_F(ChunksTest, PageRunsSpanWords) {
  const auto claim = chunks.make(k_file, 0, Chunks::k_none);
  fill(claim, {60, 70}, 'a');
  fill(claim, {128, 512}, 'b');
  EXPECT_EQ(claim.present_from(60, 512).end, 70U);
  EXPECT_EQ(claim.present_from(60, 65).end, 65U);
  EXPECT_EQ(claim.absent_from(70, 512).end, 128U);
  EXPECT_EQ(claim.present_from(128, 512).end, 512U);
  EXPECT_EQ(claim.next_present(0, 512).first, 60U);
  EXPECT_EQ(claim.next_present(65, 512).first, 65U);
  EXPECT_TRUE(claim.next_present(70, 128).is_empty());
  EXPECT_EQ(claim.next_absent({60, 512}).first, 70U);
  EXPECT_EQ(claim.next_absent({60, 512}).end, 128U);
  EXPECT_EQ(claim.next_absent({60, 512}, 10).end, 80U);
  EXPECT_EQ(claim.next_absent({0, 20}, 64).end, 20U);
  EXPECT_TRUE(claim.next_absent({128, 512}).is_empty());
  EXPECT_TRUE(claim.has_all({60, 70}));
  EXPECT_FALSE(claim.has_all({60, 71}));
  EXPECT_TRUE(claim.has_any({69, 128}));
  EXPECT_FALSE(claim.has_any({70, 128}));
}

TEST_F(ChunksTest, SecondMakerGetsTheSameChunk) {
  const auto first = chunks.make(k_file, 0, Chunks::k_none);
  EXPECT_EQ(chunks.make(k_file, 0, Chunks::k_none).place(), first.place());
}

TEST_F(ChunksTest, TwoFilesGetSeparateRunsOfPlaces) {
  const std::uint32_t first = chunks.place_for(3), second = chunks.place_for(3);
  ASSERT_NE(first, Chunks::k_none);
  ASSERT_NE(second, Chunks::k_none);
  EXPECT_TRUE(first + 3 <= second || second + 3 <= first);
  for (std::uint32_t number = 0; number < 3; ++number) {
    EXPECT_EQ(chunks.make(k_file, number, first + number).place(), first + number);
    EXPECT_EQ(chunks.make(k_other, number, second + number).place(), second + number);
  }
}

TEST_F(ChunksTest, WantedPlaceOfAnotherIsNotTaken) {
  const auto first = chunks.make(k_file, 0, 1);
  const auto second = chunks.make(k_other, 0, first.place());
  ASSERT_TRUE(second);
  EXPECT_NE(second.place(), first.place());
}

TEST_F(ChunksTest, ChunkSegmentIsNotGivenToOthers) {
  fill_region(k_file);
  EXPECT_FALSE(lease_segment(*region, 1));
  EXPECT_FALSE(chunks.make(k_other, 0, Chunks::k_none));
}

TEST_F(ChunksTest, NewVersionTakesThePlacesOfTheOldOne) {
  constexpr std::uint32_t k_job = 3;
  fill_region(k_file);
  for (std::uint32_t number = 0; number < places(); ++number)
    chunks.find(k_file, number).note_shown({0, 512}, k_job);
  const auto claim = chunks.make(k_next_version, 0, Chunks::k_none);
  ASSERT_TRUE(claim);
  EXPECT_FALSE(claim.has_any({0, 512}));
  EXPECT_EQ(claim.note_shown({0, 512}, k_job), 512U)
      << "the job was shown the former chunk, not this one";
  std::uint32_t left = 0;
  for (std::uint32_t number = 0; number < places(); ++number)
    left += chunks.find(k_file, number) ? 1 : 0;
  EXPECT_EQ(left, places() - 1);
}

TEST_F(ChunksTest, PinnedChunkKeepsItsPlace) {
  fill_region(k_file);
  std::vector<Chunks::Claim> claims;
  for (std::uint32_t number = 0; number < places(); ++number)
    claims.push_back(chunks.find(k_file, number));
  EXPECT_FALSE(chunks.make(k_next_version, 0, Chunks::k_none));
  claims.pop_back();
  EXPECT_TRUE(chunks.make(k_next_version, 0, Chunks::k_none));
}

TEST_F(ChunksTest, PinOfAnotherProcessKeepsThePlace) {
  fill_region(k_file);
  EXPECT_EQ(tests::run_in_child([&] {
              Region* const own = tests::attach(region.options);
              CHILD_CHECK(own != nullptr);
              Chunks theirs(*own);
              std::vector<Chunks::Claim> claims;
              for (std::uint32_t number = 0; number < places(); ++number)
                claims.push_back(theirs.find(k_file, number));
              CHILD_CHECK(!chunks.make(k_next_version, 0, Chunks::k_none));
              return 0;
            }),
            0);
}

TEST_F(ChunksTest, MappedChunkKeepsItsPlace) {
  fill_region(k_file);
  for (std::uint32_t number = 0; number < places(); ++number)
    chunks.find(k_file, number).note_mapped();
  EXPECT_FALSE(chunks.make(k_next_version, 0, Chunks::k_none));
}

TEST_F(ChunksTest, ChunkThatGivesItsMemoryBackLeavesTheIndex) {
  const auto taken = [&] {
    std::ptrdiff_t slots = 0;
    for (std::uint32_t i = 0; i < region->layout().chunk_bucket_count(); ++i) {
      for (const auto& slot : region->chunk_bucket(i).slots) slots += slot.load() != 0 ? 1 : 0;
    }
    return slots;
  };
  fill_region(k_file);
  EXPECT_EQ(taken(), places());
  for (std::uint32_t place = 0; place < places(); ++place) chunks.give_back_memory(place, true);
  EXPECT_EQ(taken(), 0);
}

TEST_F(ChunksTest, PlaceADeadProcessWasNamingBecomesFree) {
  const std::uint32_t place = chunks.make(k_file, 0, Chunks::k_none).place();
  tests::Child child([&] {
    Region* const own = tests::attach(region.options);
    CHILD_CHECK(own != nullptr);
    set_word(place, SegmentState::open, own->own_slot());
    raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(child.wait(), -SIGKILL);
  // Meanwhile, another process has found no place.
  region->header().chunks_full_until.store(UINT64_MAX);
  region->reap();
  EXPECT_FALSE(chunks.is_full());
  EXPECT_EQ(word(place).state, SegmentState::free);
  EXPECT_FALSE(chunks.find(k_file, 0));
  EXPECT_EQ(chunks.make(k_other, 0, place).place(), place);
}

TEST_F(ChunksTest, ChunkADeadProcessWasReclaimingIsRestored) {
  const auto claim = chunks.make(k_file, 0, Chunks::k_none);
  fill(claim, {0, 1}, 'a');
  tests::Child child([&] {
    Region* const own = tests::attach(region.options);
    CHILD_CHECK(own != nullptr);
    set_word(claim.place(), SegmentState::evicting, own->own_slot());
    raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(child.wait(), -SIGKILL);
  EXPECT_FALSE(chunks.find(k_file, 0));
  region->reap();
  const auto found = chunks.find(k_file, 0);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found.has_any({0, 1}));
}

// If enough room is left, it is checked for many pages at once.
TEST(ChunksRoomTest, LeavesTheLastSpaceOfTheFileSystemToOthers) {
  const tests::TmpfsMount tmpfs("200m");
  if (!tmpfs.is_mounted()) GTEST_SKIP() << "needs to mount";
  tests::TestRegion region(80 * tests::k_mib, tmpfs.path());
  const auto free_bytes = [&] { return base::shared_room(tmpfs.path().c_str())->free; };
  const base::UniqueFd ballast(
      open((tmpfs.path() + "/ballast").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(fallocate(ballast.get(), 0, 0, static_cast<off_t>(free_bytes() - 80 * tests::k_mib)),
            0);
  Chunks chunks{*region};
  bool has_room = true;
  for (std::uint32_t number = 0; has_room && number < 35; ++number) {
    const auto claim = chunks.make(k_file, number, Chunks::k_none);
    ASSERT_TRUE(claim);
    has_room = static_cast<bool>(chunks.window(claim, {0, ChunkRow::k_pages}));
  }
  EXPECT_FALSE(has_room);
  EXPECT_GE(free_bytes(), base::SharedRoom::k_least_left);
  EXPECT_LT(free_bytes(), base::SharedRoom::k_least_left + 2 * k_chunk_bytes);
}

TEST_F(ChunksTest, GarbageInABucketFindsNoChunk) {
  for (std::uint32_t i = 0; i < region->layout().chunk_bucket_count(); ++i) {
    for (auto& slot : region->chunk_bucket(i).slots) slot.store(0xfffffff0U);
  }
  EXPECT_FALSE(chunks.find(k_file, 0));
  EXPECT_FALSE(chunks.make(k_file, 0, Chunks::k_none));
}

}  // namespace
}  // namespace cube::cache
