// Leases of whole segments, of segments that other processes have partly filled, and of runs.
#include "cache/region/segments.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <set>
#include <thread>
#include <vector>

#include "cache/region/life/process_reaper.h"
#include "cache/region/life/process_slots.h"
#include "cache/region/life/robust_lock.h"
#include "cache/region/ring.h"
#include "tests/support/child.h"
#include "tests/support/sanitizers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"
#include "tests/support/tracee.h"

namespace cube::cache {
namespace {

using tests::Child;
using tests::Gate;
using tests::k_mib;
using tests::TestRegion;

SegmentWord word(const TestRegion& region, std::uint32_t i) {
  return SegmentWord::of_word(region->segment_row(i).word.load());
}

void reap(Region& region) {
  const RobustLock lock(&region.header().lifecycle);
  reap_dead_processes(region, region.own_slot());
}

std::uint32_t count_state(const TestRegion& region, SegmentState state) {
  std::uint32_t n = 0;
  for (std::uint32_t i = 0; i < region->layout().segment_count; ++i)
    n += word(region, i).state == state ? 1 : 0;
  return n;
}

TEST(Segments, WordSurvivesPacking) {
  for (const SegmentWord w : {SegmentWord{}, SegmentWord{SegmentState::evicting, 255, UINT32_MAX},
                              SegmentWord{SegmentState::open, k_no_owner, 1}}) {
    const SegmentWord back = SegmentWord::of_word(w.as_word());
    EXPECT_EQ(back.state, w.state);
    EXPECT_EQ(back.owner, w.owner);
    EXPECT_EQ(back.generation, w.generation);
  }
  EXPECT_EQ(SegmentWord::of_word(0).state, SegmentState::free);
}

TEST(Segments, ALeaseIsOpenOursAndHasAGeneration) {
  const TestRegion region;
  const auto leased = lease_segment(*region, 1000);
  ASSERT_TRUE(leased);
  EXPECT_EQ(word(region, *leased).state, SegmentState::open);
  EXPECT_EQ(word(region, *leased).owner, region->own_slot());
  EXPECT_NE(word(region, *leased).generation, 0U);
  EXPECT_EQ(region->segment_row(*leased).fill.load(), 0U);
}

TEST(Segments, EachIsLeasedOnceAndThenLeaseFails) {
  const TestRegion region;
  std::set<std::uint32_t> leased;
  for (std::uint32_t i = 0; i < region->layout().segment_count; ++i) {
    const auto segment = lease_segment(*region, 1000);
    ASSERT_TRUE(segment) << i;
    EXPECT_TRUE(leased.insert(*segment).second);
  }
  EXPECT_EQ(lease_segment(*region, 1).error().value, ENOSPC);
  EXPECT_EQ(lease_run(*region, 2).error().value, ENOSPC);
}

TEST(Segments, GenerationIsNeverZero) {
  const TestRegion region;
  region->segment_row(0).word.store(
      SegmentWord{SegmentState::free, k_no_owner, UINT32_MAX}.as_word());
  region->header().free_hint.store(0);
  ASSERT_EQ(*lease_segment(*region, 1), 0U);
  EXPECT_EQ(word(region, 0).generation, 1U);
}

TEST(Segments, RestOfAReleasedSegmentIsLeasedIfItIsEnough) {
  const TestRegion region;
  const std::uint32_t first = *lease_segment(*region, 1);
  region->segment_row(first).fill.store(region->layout().segment_bytes - 5000);
  const std::uint32_t generation = word(region, first).generation;
  release_lease(*region, first);
  EXPECT_NE(*lease_segment(*region, 5001), first);
  EXPECT_EQ(*lease_segment(*region, 5000), first);
  EXPECT_EQ(word(region, first).generation, generation) << "its records would be lost";
  EXPECT_EQ(region->segment_row(first).fill.load(), region->layout().segment_bytes - 5000);
}

std::uint64_t bytes_in_memory(const TestRegion& region) {
  struct ::stat stat {};
  EXPECT_EQ(::stat(region->path().c_str(), &stat), 0);
  return static_cast<std::uint64_t>(stat.st_blocks) * 512;
}

TEST(Segments, PreparedSegmentNeedsNoMemoryWhenItIsLeased) {
  const TestRegion region;
  const std::uint64_t none = bytes_in_memory(region);
  EXPECT_TRUE(*prepare_segment(*region, 2));
  EXPECT_TRUE(*prepare_segment(*region, 2));
  EXPECT_FALSE(*prepare_segment(*region, 2));
  const std::uint64_t prepared = bytes_in_memory(region);
  EXPECT_EQ(prepared, none + 2 * region->layout().segment_bytes);
  EXPECT_EQ(count_state(region, SegmentState::free), region->layout().segment_count);
  ASSERT_TRUE(lease_segment(*region, 1000));
  ASSERT_TRUE(lease_segment(*region, 1000));
  EXPECT_EQ(bytes_in_memory(region), prepared);
  ASSERT_TRUE(lease_segment(*region, 1000));
  EXPECT_EQ(bytes_in_memory(region), prepared + region->layout().segment_bytes);
}

TEST(Segments, ARunThatIsPartlyPreparedGetsMemoryForTheRest) {
  const TestRegion region;
  const std::uint64_t none = bytes_in_memory(region);
  EXPECT_TRUE(*prepare_segment(*region, 1));
  ASSERT_TRUE(lease_run(*region, 3));
  EXPECT_EQ(bytes_in_memory(region), none + 3 * region->layout().segment_bytes);
}

TEST(Segments, PrepareDoesNothingIfAllAreTaken) {
  const TestRegion region;
  while (lease_segment(*region, 1000)) {
  }
  EXPECT_FALSE(*prepare_segment(*region, 1));
}

TEST(Segments, ASealedOneIsNotLeasedAgain) {
  const TestRegion region;
  const std::uint32_t first = *lease_segment(*region, 1);
  seal_segment(*region, first);
  EXPECT_EQ(word(region, first).state, SegmentState::sealed);
  EXPECT_NE(*lease_segment(*region, 1), first);
}

TEST(Segments, LeaseOfAnotherProcessIsNotReleased) {
  const TestRegion region;
  const std::uint32_t first = *lease_segment(*region, 1);
  region->segment_row(first).word.store(SegmentWord{SegmentState::open, 77, 1}.as_word());
  release_lease(*region, first);
  EXPECT_EQ(word(region, first).owner, 77U);
}

TEST(Segments, ARunIsConsecutive) {
  const TestRegion region;
  ASSERT_EQ(*lease_segment(*region, 1), 0U);
  const auto run = lease_run(*region, 3);
  ASSERT_TRUE(run);
  EXPECT_EQ(word(region, *run).state, SegmentState::open);
  EXPECT_EQ(word(region, *run + 1).state, SegmentState::tail);
  EXPECT_EQ(word(region, *run + 2).state, SegmentState::tail);
  EXPECT_EQ(region->segment_row(*run).run_length.load(), 3U);
  EXPECT_FALSE(word(region, *run + 1).is_readable());
}

TEST(Segments, RunThatFitsNowhereTakesNoSegment) {
  const TestRegion region;
  const std::uint32_t total = region->layout().segment_count;
  for (std::uint32_t i = 1; i < total; i += 2) {
    region->segment_row(i).word.store(SegmentWord{SegmentState::sealed, k_no_owner, 1}.as_word());
  }
  const std::uint32_t free_before = count_state(region, SegmentState::free);
  EXPECT_EQ(lease_run(*region, 2).error().value, ENOSPC);
  EXPECT_EQ(count_state(region, SegmentState::free), free_before);
  EXPECT_EQ(lease_run(*region, total + 1).error().value, ENOSPC);
}

TEST(Segments, ThreadsAndProcessesNeverLeaseTheSameOne) {
  const TestRegion region(128 * k_mib);
  const std::uint32_t total = region->layout().segment_count;
  std::vector<Child> children;
  for (int c = 0; c < 3; ++c) {
    children.emplace_back([&] {
      Region* const mine = tests::attach(region.options);
      CHILD_CHECK(mine != nullptr);
      std::atomic<std::uint32_t> got{0};
      std::vector<std::thread> threads;
      for (int t = 0; t < 2; ++t) {
        threads.emplace_back([&] {
          for (std::uint32_t i = 0; i < total / 6; ++i) {
            if (lease_segment(*mine, 1000)) got.fetch_add(1);
          }
        });
      }
      for (auto& thread : threads) thread.join();
      std::uint32_t owned = 0;
      for (std::uint32_t i = 0; i < total; ++i) {
        owned += SegmentWord::of_word(mine->segment_row(i).word.load()).owner == mine->own_slot()
                     ? 1
                     : 0;
      }
      CHILD_CHECK(owned == got.load());
      CHILD_CHECK(owned == total / 6 * 2);
      _exit(0);
    });
  }
  for (auto& child : children) EXPECT_EQ(child.wait(), 0);
}

TEST(Segments, SegmentsOfADeadProcessAreLeasedAgainAndKeepTheirRecords) {
  const TestRegion region;
  const int status = tests::run_in_child([&] {
    Region* const mine = tests::attach(region.options);
    CHILD_CHECK(mine != nullptr && *lease_segment(*mine, 1) == 0);
    mine->segment_row(0).fill.store(4096);
    raise(SIGKILL);
    return 0;
  });
  ASSERT_EQ(status, -SIGKILL);
  reap(*region);
  EXPECT_EQ(word(region, 0).owner, k_no_owner);
  EXPECT_EQ(*lease_segment(*region, 1000), 0U);
  EXPECT_EQ(region->segment_row(0).fill.load(), 4096U);
}

// The ring takes no segment that others have leased, so segments of the dead at the ring's places
// must be leased again.
TEST(Segments, SegmentOfADeadProcessIsReusableUnlessItBelongsToTheRing) {
  const TestRegion region(32 * k_mib);
  Ring ring(*region);
  const std::uint32_t last = region->layout().segment_count - 1;
  const int status = tests::run_in_child([&] {
    Region* const mine = tests::attach(region.options);
    CHILD_CHECK(mine != nullptr && lease_free(*mine, last));
    mine->segment_row(last).fill.store(4096);
    Ring(*mine).make(8 * k_mib);
    const auto passing = Ring(*mine).lease();
    CHILD_CHECK(passing && *passing == Ring(*mine).first_segment());
    mine->segment_row(*passing).fill.store(4096);
    raise(SIGKILL);
    return 0;
  });
  ASSERT_EQ(status, -SIGKILL);
  reap(*region);
  ASSERT_LT(ring.first_segment(), last);
  EXPECT_EQ(word(region, last).owner, k_no_owner);
  EXPECT_EQ(word(region, ring.first_segment()).owner, k_no_owner);
  EXPECT_EQ(*lease_segment(*region, 1000), last);
  EXPECT_EQ(region->segment_row(last).fill.load(), 4096U);
  EXPECT_FALSE(ring.owns(last));
  // The next one is a free segment; a segment that the ring has filled stays the ring's.
  EXPECT_EQ(*lease_segment(*region, 1000), 0U);
  EXPECT_TRUE(ring.owns(ring.first_segment()));
}

// A segment must have its memory before it is leased. Otherwise, if the process dies in between,
// the next process writes into a hole, which raises SIGBUS in the program on a full tmpfs.
TEST(Segments, SegmentOfAProcessKilledBeforeReservingHasMemory) {
  const tests::TmpfsMount tmpfs("64m");
  if (!tmpfs.is_mounted()) GTEST_SKIP() << "cannot mount a tmpfs";
  const TestRegion region(24 * k_mib, tmpfs.path());
  tests::Tracee child([&] {
    Region* const mine = tests::attach(region.options);
    CHILD_CHECK(mine != nullptr);
    RamTier tier(*mine);
    return tests::put(tier, "/a", "x") ? 0 : 1;
  });
  ASSERT_TRUE(child.to_entry_of(SYS_fallocate));
  child.kill();
  reap(*region);
  tmpfs.fill();
  const int status = tests::run_in_child([&] {
    Region* const mine = tests::attach(region.options);
    CHILD_CHECK(mine != nullptr);
    RamTier tier(*mine);
    (void)tests::put(tier, "/b", std::string(100'000, 'x'));
    return 0;
  });
  EXPECT_EQ(status, 0) << (status == -SIGBUS ? "SIGBUS" : "");
}

// Segments that a dead writer of a large file had leased must become free again.
TEST(Segments, UnpublishedRunOfADeadWriterBecomesFree) {
  const TestRegion region;
  const std::uint32_t free_before = count_state(region, SegmentState::free);
  const int status = tests::run_in_child([&] {
    Region* const mine = tests::attach(region.options);
    CHILD_CHECK(mine != nullptr);
    RamTier tier(*mine);
    const auto reservation = tier.reserve(10, 3 * k_mib);
    CHILD_CHECK(reservation);
    raise(SIGKILL);
    return 0;
  });
  ASSERT_EQ(status, -SIGKILL);
  reap(*region);
  EXPECT_EQ(count_state(region, SegmentState::free), free_before);
}

// A writer is killed while it frees a run. Before the reaper runs, another process leases the
// segments that are already free.
TEST(Segments, RunIsFreedOnceIfItsWriterIsKilledWhileFreeingIt) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  const TestRegion region;
  const std::uint32_t segments = region->layout().segment_count;
  bool is_over = false;
  int partly = 0;
  for (long steps = 0; !is_over; ++steps) {
    {
      tests::Tracee child([&] {
        Region* const mine = tests::attach(region.options);
        CHILD_CHECK(mine != nullptr);
        const auto run = lease_run(*mine, segments);
        CHILD_CHECK(run);
        raise(SIGSTOP);
        free_run(*mine, *run);
        raise(SIGSTOP);
        return 0;
      });
      ASSERT_TRUE(child.to_stop());
      is_over = child.step_on(steps);
    }
    std::vector<SegmentWord> leased(segments);
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < segments; ++i) {
      if (!lease_free(*region, i)) continue;
      leased[i] = word(region, i);
      ++count;
    }
    partly += count > 0 && count < segments ? 1 : 0;
    reap(*region);
    for (std::uint32_t i = 0; i < segments; ++i) {
      const bool is_ours = leased[i].state == SegmentState::open;
      if (is_ours) {
        EXPECT_EQ(word(region, i).as_word(), leased[i].as_word()) << steps;
      }
      ASSERT_TRUE(is_ours || lease_free(*region, i)) << "segment " << i << ", step " << steps;
      free_run(*region, i);
    }
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(partly, 0);
}

TEST(Segments, ARunThatWasPublishedOutlivesItsWriter) {
  const TestRegion region;
  const std::string data = tests::content_of("/big", 1, 3 * k_mib);
  const int status = tests::run_in_child([&] {
    Region* const mine = tests::attach(region.options);
    CHILD_CHECK(mine != nullptr);
    RamTier tier(*mine);
    CHILD_CHECK(tests::put(tier, "/big", data));
    raise(SIGKILL);
    return 0;
  });
  ASSERT_EQ(status, -SIGKILL);
  reap(*region);
  RamTier tier(*region);
  const Pin pin = tests::find(tier, "/big");
  ASSERT_TRUE(pin);
  EXPECT_EQ(tests::bytes_of(*pin), data);
}

// A search for a run holds all free segments for a moment. A process that finds no free segment at
// that moment records that the region is full. This record must be withdrawn.
TEST(Segments, ReleasedRunClearsTheFullMark) {
  const TestRegion region;
  RamTier tier(*region);
  {
    const auto run = tier.reserve(
        10, (region->layout().segment_count - 1) * std::uint64_t{region->layout().segment_bytes});
    ASSERT_TRUE(run);
    ASSERT_FALSE(tests::put(tier, "/a", "no room"));
    ASSERT_TRUE(tier.is_full());
  }
  EXPECT_FALSE(tier.is_full());
  ASSERT_TRUE(tier.reserve(2, 10));
}

}  // namespace
}  // namespace cube::cache
