// Chunks that pass through a full region: which chunks are replaced, which stay, and the state if a
// process dies during a replacement.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "cache/region/large/chunks.h"
#include "cache/region/segments.h"
#include "tests/support/child.h"
#include "tests/support/effort.h"
#include "tests/support/sanitizers.h"
#include "tests/support/survivor.h"
#include "tests/support/test_region.h"
#include "tests/support/tracee.h"

namespace cube::cache {
namespace {

using tests::Tracee;

constexpr FileKey k_kept{1, {2, 3}}, k_passing{4, {5, 6}};
constexpr PageRun k_page_of_number{7, 8};

std::uint64_t word_for(const FileKey& key, std::uint32_t number) {
  return key.path << 32 | (number + 1);
}

// Makes the chunk, with a page whose bytes identify the chunk.
Chunks::Claim put(Chunks& chunks, const FileKey& key, std::uint32_t number, Chunks::Pass pass) {
  auto claim = chunks.make(key, number, Chunks::k_none, pass);
  if (!claim || claim.has_any(k_page_of_number)) return claim;
  const auto window = chunks.window(claim, k_page_of_number);
  if (!window) return {};
  const std::uint64_t word = word_for(key, number);
  std::memcpy(window->data(), &word, sizeof word);
  chunks.note_present(claim, k_page_of_number);
  return claim;
}

// Returns true if the chunk is not found, has no page, or has the right page.
bool is_right(const Chunks& chunks, const FileKey& key, std::uint32_t number) {
  const auto claim = chunks.find(key, number);
  if (!claim || !claim.has_any(k_page_of_number)) return true;
  std::uint64_t word = 0;
  std::memcpy(&word, claim.data() + k_page_of_number.first * Chunks::k_page_bytes, sizeof word);
  return word == word_for(key, number);
}

// 2 MiB segments, each for one chunk.
struct PassingTestRegion {
  tests::TestRegion region{40 * tests::k_mib};
  Chunks chunks{*region};
  const std::uint32_t places = resident_segments(*region);

  PassingTestRegion() {
    for (std::uint32_t number = 0; number < places; ++number)
      EXPECT_TRUE(put(chunks, k_kept, number, Chunks::Pass::no));
  }
  bool pass(std::uint32_t number) {
    return static_cast<bool>(put(chunks, k_passing, number, Chunks::Pass::may_pass));
  }
  std::uint32_t found(const FileKey& key, std::uint32_t from, std::uint32_t to) const {
    std::uint32_t count = 0;
    for (std::uint32_t number = from; number < to; ++number)
      count += chunks.find(key, number) ? 1 : 0;
    return count;
  }
  std::uint32_t half() const { return places / 2; }
  SegmentState state(std::uint32_t place) const {
    return SegmentWord::of_word(region->chunk_row(place).word.load()).state;
  }
  std::uint32_t number_at(std::uint32_t place) const {
    return region->chunk_row(place).number.load();
  }
};

struct PassingTest : PassingTestRegion, testing::Test {};

TEST_F(PassingTest, OnlyOneThatMayPassGetsAPlace) {
  EXPECT_FALSE(put(chunks, k_passing, 0, Chunks::Pass::no));
  EXPECT_EQ(found(k_kept, 0, places), places);
  EXPECT_TRUE(pass(0));
  EXPECT_EQ(found(k_kept, 0, places), places - 1);
}

TEST_F(PassingTest, PassingChunksStayWithinTheirPartAndReplaceTheOldest) {
  for (std::uint32_t number = 0; number < 5 * places; ++number) {
    ASSERT_TRUE(pass(number)) << number;
    const std::uint32_t last = number + 1;
    EXPECT_EQ(found(k_passing, last - std::min(last, half()), last), std::min(last, half()))
        << number;
    EXPECT_EQ(found(k_passing, 0, last), std::min(last, half())) << number;
  }
  EXPECT_EQ(found(k_kept, 0, places), places - half());
  EXPECT_EQ(chunks.passing_bytes(), std::uint64_t{half()} * k_chunk_bytes);
}

TEST_F(PassingTest, UsedBytesCountPresentPages) {
  for (std::uint32_t number = 0; number < 3 * places; ++number) ASSERT_TRUE(pass(number));
  EXPECT_EQ(region->header().used_bytes.load(), places * Chunks::k_page_bytes);
}

TEST_F(PassingTest, PinnedChunkStays) {
  ASSERT_TRUE(pass(0));
  const auto claim = chunks.find(k_passing, 0);
  for (std::uint32_t number = 1; number < 3 * places; ++number) ASSERT_TRUE(pass(number));
  EXPECT_TRUE(is_right(chunks, k_passing, 0));
  EXPECT_EQ(chunks.find(k_passing, 0).place(), claim.place());
}

TEST_F(PassingTest, PinOfAnotherProcessKeepsTheChunk) {
  ASSERT_TRUE(pass(0));
  const auto claim = chunks.find(k_passing, 0);
  EXPECT_EQ(tests::run_in_child([&] {
              Region* const own = tests::attach(region.options);
              CHILD_CHECK(own != nullptr);
              Chunks theirs(*own);
              for (std::uint32_t number = 1; number < 3 * places; ++number)
                CHILD_CHECK(put(theirs, k_passing, number, Chunks::Pass::may_pass));
              return 0;
            }),
            0);
  EXPECT_EQ(chunks.find(k_passing, 0).place(), claim.place());
}

TEST_F(PassingTest, MappedChunkStays) {
  for (std::uint32_t number = 0; number < places; ++number)
    chunks.find(k_kept, number).note_mapped();
  EXPECT_FALSE(pass(0));
  EXPECT_EQ(found(k_kept, 0, places), places);
}

// An unread chunk is not evicted early when other chunks are pinned. Half of these chunks are
// younger.
TEST_F(PassingTest, YoungChunkStaysWhileOthersArePinned) {
  for (std::uint32_t number = 0; number < 2 * half(); ++number) ASSERT_TRUE(pass(number));
  std::vector<Chunks::Claim> claims;
  for (std::uint32_t number = half(); number + 2 < 2 * half(); ++number)
    claims.push_back(chunks.find(k_passing, number));
  EXPECT_FALSE(pass(2 * half()));
  EXPECT_EQ(found(k_passing, half(), 2 * half()), half());
  claims.clear();
  EXPECT_TRUE(pass(2 * half()));
}

TEST_F(PassingTest, RegionOfFewPlacesHasNoPart) {
  tests::TestRegion small(16 * tests::k_mib);
  Chunks of_small(*small);
  ASSERT_LT(resident_segments(*small), 8U);
  for (std::uint32_t number = 0; number < resident_segments(*small); ++number)
    ASSERT_TRUE(put(of_small, k_kept, number, Chunks::Pass::no));
  EXPECT_FALSE(put(of_small, k_passing, 0, Chunks::Pass::may_pass));
}

// The process is killed at each instruction of a replacement in turn.
TEST_F(PassingTest, DeathAtAnyInstructionOfAReplacementIsHarmless) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  tests::Survivor survivor(*region);
  tests::KillCounts counts;
  std::uint32_t next = 0;
  const auto child_that_passes = [&](std::uint32_t number) {
    return Tracee([&, number] {
      Region* const own = tests::attach(region.options);
      CHILD_CHECK(own != nullptr);
      Chunks theirs(*own);
      raise(SIGSTOP);
      const bool is_made =
          static_cast<bool>(theirs.make(k_passing, number, Chunks::k_none, Chunks::Pass::may_pass));
      raise(SIGSTOP);
      return is_made ? 0 : 1;
    });
  };
  for (; next < 2 * places; ++next) ASSERT_TRUE(pass(next));
  long length = 0;
  {
    Tracee child = child_that_passes(next++);
    ASSERT_TRUE(child.to_stop());
    while (child.step() && !child.is_at_raise()) ++length;
  }
  const int kills = tests::k_asan ? 20 : 60;
  int replaced = 0;
  for (int k = 0; k < kills; ++k, ++next) {
    Tracee child = child_that_passes(next);
    ASSERT_TRUE(child.to_stop());
    // The writes come last.
    const long at = k % 2 == 0 ? length * k / kills : length - length * k / kills / 8;
    for (long i = 0; i < at && child.step(); ++i) {
    }
    child.kill();
    ++counts.kills;
    survivor.check_tables(counts);
    for (std::uint32_t number = 0; number <= next; ++number)
      ASSERT_TRUE(is_right(chunks, k_passing, number)) << number;
    for (std::uint32_t number = 0; number < places; ++number)
      ASSERT_TRUE(is_right(chunks, k_kept, number)) << number;
    for (std::uint32_t place = 0; place < places; ++place) {
      const auto word = SegmentWord::of_word(region->chunk_row(place).word.load());
      ASSERT_EQ(word.owner, k_no_owner) << place;
      ASSERT_TRUE(word.state == SegmentState::free || word.state == SegmentState::sealed) << place;
    }
    replaced += chunks.find(k_passing, next) ? 1 : 0;
    ASSERT_TRUE(pass(next)) << k;
    ASSERT_TRUE(pass(++next)) << k;
  }
  counts.print("within a replacement");
  std::printf("a replacement has %ld instructions; the new chunk was there after %d of %d kills\n",
              length, replaced, kills);
  EXPECT_TRUE(counts.is_clean());
  EXPECT_GT(replaced, 0);
  EXPECT_LT(replaced, kills);
  // No place was lost. Places that were free after a death hold resident chunks.
  EXPECT_GE(found(k_passing, 0, next + 1) + found(k_kept, 0, places), places - 1);
  std::uint32_t passing = 0;
  for (std::uint32_t place = 0; place < places; ++place)
    passing += region->chunk_row(place).passed.load() != 0 ? 1 : 0;
  EXPECT_LE(passing, half() + 1);
}

// A child's `take` is stopped around the step with which it gets the place, and a reader arrives at
// that moment. The child and the reader must not both get the place.
template <typename Take>
void claim_around(Take&& take) {
  constexpr long k_around = 60;
  long middle = 0;
  int taken = 0, kept = 0;
  for (long steps = -1; steps < middle + 8;
       steps = steps < 0 ? std::max(0L, middle - k_around) : steps + 2) {
    PassingTestRegion all;
    // The region is known to be full, so that a place is taken immediately.
    EXPECT_FALSE(all.chunks.make(k_passing, 0, Chunks::k_none));
    all.region->header().chunks_full_until.store(UINT64_MAX);
    // The chunk that is replaced first.
    const std::uint32_t number = all.number_at(0);
    Tracee child([&] {
      Region* const own = tests::attach(all.region.options);
      CHILD_CHECK(own != nullptr);
      Chunks theirs(*own);
      raise(SIGSTOP);
      take(theirs);
      return 0;
    });
    ASSERT_TRUE(child.to_stop());
    if (steps < 0) {
      while (all.state(0) != SegmentState::evicting && child.step()) ++middle;
      ASSERT_TRUE(child.is_alive()) << "it never took the place";
    }
    for (long i = 0; i < steps && child.step(); ++i) {
    }
    const auto claim = all.chunks.find(k_kept, number);
    while (child.to_stop()) {
    }
    EXPECT_EQ(child.exit_status(), 0);
    const bool is_there = all.chunks.find(k_kept, number) &&
                          all.chunks.find(k_kept, number).has_any(k_page_of_number);
    EXPECT_FALSE(claim && !is_there) << "both, at step " << steps << " of " << middle;
    (is_there ? kept : taken) += 1;
  }
  EXPECT_GT(taken, 0);
  EXPECT_GT(kept, 0);
}

TEST(PassingSteps, ReaderDuringAReplacementGetsTheOldOrTheNewChunk) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  claim_around(
      [](Chunks& chunks) { chunks.make(k_passing, 0, Chunks::k_none, Chunks::Pass::may_pass); });
}

TEST(PassingSteps, ReaderDuringAGiveBackGetsAWholeChunkOrNone) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  claim_around([](Chunks& chunks) { chunks.give_back_memory(0, /*whatever=*/true); });
}

// The reader is stopped before each of the last steps that lead to its pin, and its chunk is
// replaced there.
TEST(PassingSteps, ReaderDoesNotPinTheReplacementOfItsChunk) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  constexpr long k_before = tests::k_asan ? 160 : 40;
  constexpr int k_got_it = 10, k_got_none = 11, k_got_another = 12;
  PassingTestRegion all;
  EXPECT_FALSE(all.chunks.make(k_passing, 0, Chunks::k_none));
  all.region->header().chunks_full_until.store(UINT64_MAX);
  std::uint32_t place = 0;
  const auto reader = [&] {
    return Tracee([&] {
      Region* const own = tests::attach(all.region.options);
      CHILD_CHECK(own != nullptr);
      const ChunkRow& row = own->chunk_row(place);
      const FileKey key{row.path.load(), {row.version[0].load(), row.version[1].load()}};
      const std::uint32_t number = row.number.load();
      raise(SIGSTOP);
      const auto claim = Chunks(*own).find(key, number, place);
      if (!claim) return k_got_none;
      return row.path.load() == key.path && row.number.load() == number ? k_got_it : k_got_another;
    });
  };
  const auto is_claimed = [&] { return is_segment_pinned(*all.region, place); };
  long middle = 0;
  {
    Tracee child = reader();
    ASSERT_TRUE(child.to_stop());
    while (!is_claimed() && child.step()) ++middle;
    ASSERT_TRUE(child.is_alive()) << "it never made a claim";
  }
  int kept = 0, replaced = 0;
  for (long steps = std::max(0L, middle - k_before); steps < middle + 2; ++steps) {
    all.region->reap();
    place = all.region->header().passing_hand.load() % all.places;
    Tracee child = reader();
    ASSERT_TRUE(child.to_stop());
    for (long i = 0; i < steps; ++i) ASSERT_TRUE(child.step());
    ASSERT_TRUE(all.pass(static_cast<std::uint32_t>(steps)));
    while (child.to_stop()) {
    }
    const int end = child.exit_status();
    EXPECT_TRUE(end == k_got_it || end == k_got_none) << end << " at step " << steps;
    kept += end == k_got_it ? 1 : 0;
    replaced += end == k_got_none ? 1 : 0;
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(replaced, 0);
}

// Processes make, read and check chunks of the same files in a full region, and some are killed.
TEST_F(PassingTest, ManyProcessesReadNoWrongByte) {
  constexpr std::uint32_t k_numbers = 400;
  const auto work = [&](std::uint64_t seed, int rounds) {
    return tests::Child([&, seed, rounds] {
      Region* const own = tests::attach(region.options);
      CHILD_CHECK(own != nullptr);
      Chunks theirs(*own);
      std::uint64_t random = seed * 0x9e3779b97f4a7c15ULL + 1;
      for (int i = 0; i < rounds; ++i) {
        random = random * 6364136223846793005ULL + 1442695040888963407ULL;
        const auto number = static_cast<std::uint32_t>((random >> 33) % k_numbers);
        if ((random >> 60) < 4) {
          // Each number has only one writer, as the flight for a block ensures.
          const std::uint32_t mine = number / 8 * 8 + static_cast<std::uint32_t>(seed % 8);
          static_cast<void>(put(theirs, k_passing, mine, Chunks::Pass::may_pass));
          CHILD_CHECK(is_right(theirs, k_passing, mine));
        } else {
          CHILD_CHECK(is_right(theirs, k_passing, number));
        }
      }
      return 0;
    });
  };
  for (int round = 0; round < tests::rounds(2, 10); ++round) {
    std::vector<tests::Child> children;
    for (std::uint64_t seed = 0; seed < 4; ++seed) children.push_back(work(seed, 20'000));
    for (std::uint64_t seed = 4; seed < 8; ++seed) {
      tests::Child victim = work(seed, 1 << 30);
      const std::uint64_t newest = region->header().passing_order.load();
      const std::uint64_t until = base::monotonic_ns() + 60'000'000'000;
      while (region->header().passing_order.load() < newest + 20 && base::monotonic_ns() < until)
        sched_yield();
      EXPECT_GE(region->header().passing_order.load(), newest + 20);
      victim.kill();
      region->reap();
    }
    for (auto& child : children) EXPECT_EQ(child.wait(), 0);
  }
  for (std::uint32_t number = 0; number < k_numbers + 8; ++number)
    EXPECT_TRUE(is_right(chunks, k_passing, number));
}

}  // namespace
}  // namespace cube::cache
