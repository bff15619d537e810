// Kept chunks: how many places they may occupy, and which chunks replace them.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "cache/region/large/chunks.h"
#include "cache/region/segments.h"
#include "tests/support/effort.h"
#include "tests/support/sanitizers.h"
#include "tests/support/test_region.h"
#include "tests/support/tracee.h"

namespace cube::cache {
namespace {

FileKey key_of_part(std::uint64_t file) { return {file + 1, {file * 7 + 2, file + 3}}; }

struct KeptChunksTest : testing::Test {
  // 2 MiB segments, each for one chunk.
  tests::TestRegion region{40 * tests::k_mib};
  Chunks chunks{*region};
  const std::uint32_t places = resident_segments(*region);

  // Keeps one page of each of `files` files. Returns for how many files there was a place.
  std::uint32_t keep(std::uint32_t files) {
    std::uint32_t kept = 0;
    for (std::uint32_t file = 0; file < files; ++file) {
      const auto claim = chunks.make_kept(key_of_part(file), 0);
      kept += claim ? 1 : 0;
      const PageRun page{0, 1};
      if (!claim || claim.has_any(page) || !chunks.window(claim, page)) continue;
      chunks.note_present(claim, page);
    }
    return kept;
  }
  std::uint32_t found(std::uint32_t files) const {
    std::uint32_t found = 0;
    for (std::uint32_t file = 0; file < files; ++file)
      found += chunks.find_kept(key_of_part(file), 0) ? 1 : 0;
    return found;
  }
  std::uint64_t used_bytes() const { return region->header().used_bytes.load(); }
};

TEST_F(KeptChunksTest, TakeNoMorePlacesThanChunksThatPass) {
  const std::uint32_t most = Chunks::most_passing(places);
  ASSERT_LT(most, places);
  EXPECT_EQ(keep(100), 100U) << "one replaces another";
  EXPECT_EQ(found(100), most);
  EXPECT_EQ(used_bytes(), std::uint64_t{most} * Chunks::k_page_bytes);
  EXPECT_EQ(chunks.free_bytes(), std::uint64_t{places} * k_chunk_bytes);
}

TEST_F(KeptChunksTest, SomeAreFoundByAScanOfMoreFilesThanFit) {
  keep(2 * Chunks::most_passing(places));
  std::uint32_t hits = 0;
  for (int epoch = 0; epoch < 4; ++epoch) {
    for (std::uint32_t file = 0; file < 2 * Chunks::most_passing(places); ++file) {
      hits += chunks.find_kept(key_of_part(file), 0) ? 1 : 0;
      chunks.make_kept(key_of_part(file), 0);
    }
  }
  EXPECT_GT(hits, 0U);
}

TEST_F(KeptChunksTest, AreNotFoundAsChunksOfALargeFile) {
  keep(1);
  EXPECT_FALSE(chunks.find(key_of_part(0), 0));
  EXPECT_TRUE(chunks.make(key_of_part(0), 0, Chunks::k_none));
  EXPECT_TRUE(chunks.find_kept(key_of_part(0), 0));
}

TEST_F(KeptChunksTest, LargeFilesReplaceThemIfNoPlaceIsFree) {
  keep(100);
  for (std::uint32_t number = 0; number < places; ++number)
    EXPECT_TRUE(chunks.make(key_of_part(200), number, Chunks::k_none)) << number;
  EXPECT_EQ(found(100), 0U);
  EXPECT_EQ(used_bytes(), 0U);
  EXPECT_EQ(keep(100), 0U);
}

TEST_F(KeptChunksTest, RecordsGetTheirSegments) {
  keep(100);
  EXPECT_TRUE(chunks.make(key_of_part(200), 0, Chunks::k_none));
  while (lease_segment(*region, k_chunk_bytes)) continue;
  EXPECT_TRUE(chunks.free_kept_segments());
  EXPECT_EQ(found(100), 0U);
  EXPECT_EQ(used_bytes(), 0U);
  EXPECT_TRUE(chunks.find(key_of_part(200), 0)) << "another chunk stays";
  std::uint32_t leased = 0;
  while (lease_segment(*region, k_chunk_bytes)) ++leased;
  EXPECT_EQ(leased, Chunks::most_passing(places));
  EXPECT_FALSE(chunks.free_kept_segments());
}

TEST_F(KeptChunksTest, ReadChunkStays) {
  keep(2);
  {
    const auto claim = chunks.find_kept(key_of_part(1), 0);
    EXPECT_TRUE(chunks.free_kept_segments());
    EXPECT_FALSE(chunks.find_kept(key_of_part(0), 0));
    EXPECT_TRUE(chunks.find_kept(key_of_part(1), 0));
  }
  EXPECT_TRUE(chunks.free_kept_segments());
  EXPECT_FALSE(chunks.find_kept(key_of_part(1), 0));
}

// A process is killed at many different instructions while it hands the segments over to records.
TEST_F(KeptChunksTest, DeathLosesNoSegment) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  constexpr std::uint32_t k_files = 3;
  const auto child = [&] {
    return tests::Tracee([&] {
      Region* const own = tests::attach(region.options);
      CHILD_CHECK(own != nullptr);
      raise(SIGSTOP);
      Chunks(*own).free_kept_segments();
      raise(SIGSTOP);
      return 0;
    });
  };
  const auto prepare = [&] {
    while (prepare_segment(*region, places).value_or(false)) continue;
    ASSERT_EQ(keep(k_files), k_files);
  };
  const auto is_given = [&] {
    return word_of(region->segment_row(places - 1)).state != SegmentState::chunks;
  };
  prepare();
  long all = 0, given = 0;
  {
    tests::Tracee whole = child();
    ASSERT_TRUE(whole.to_stop());
    while (!whole.step_on(1)) {
      ++all;
      if (is_given() && given == 0) given = all;
    }
  }
  region->reap();
  ASSERT_GT(given, 0);
  int killed_before = 0, killed_after = 0;
  // Kills a process after this many steps. Returns false if the process had already finished, or if
  // a check has failed. The number of steps differs from one process to the next.
  const auto kill_after = [&](long steps) {
    prepare();
    bool is_over = false;
    {
      tests::Tracee victim = child();
      EXPECT_TRUE(victim.to_stop());
      is_over = victim.step_on(steps);
    }
    ++(is_given() ? killed_after : killed_before);
    region->reap();
    chunks.free_kept_segments();
    for (std::uint32_t segment = places - k_files; segment < places; ++segment)
      EXPECT_EQ(region->segment_row(segment).has_memory.load(), 0U) << steps;
    for (std::uint32_t segment = 0; segment < places; ++segment) {
      EXPECT_TRUE(lease_free(*region, segment)) << segment << " at step " << steps;
      free_run(*region, segment);
    }
    return !is_over && !HasFailure();
  };
  const long stride = std::max(1L, all / tests::rounds(30, 300));
  for (long steps = 0; kill_after(steps); steps += stride) continue;
  for (long steps = given - 1; steps < given + 20 && kill_after(steps); ++steps) continue;
  EXPECT_GT(killed_before, 1);
  EXPECT_GT(killed_after, 1);
}

}  // namespace
}  // namespace cube::cache
