// Attached processes. Living processes never count as dead, and dead processes are reaped without
// loss of their counters.
#include "cache/region/life/process_slots.h"
#include "cache/region/life/process_reaper.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <vector>

#include "cache/region/lanes.h"
#include "cache/region/life/life_lock.h"
#include "cache/region/life/robust_lock.h"
#include "cache/region/segments.h"
#include "cache/report/job_totals.h"
#include "tests/support/attached_child.h"
#include "tests/support/child.h"
#include "tests/support/reap.h"
#include "tests/support/sanitizers.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

using base::Counter;
using tests::Child;
using tests::Gate;
using tests::reap;
using tests::TestRegion;

base::ProcessId other_job(const RegionOptions& options, std::uint32_t number) {
  base::ProcessId job = options.job;
  job.pid_namespace += number;
  return job;
}

std::string why_refused(const RegionOptions& options) {
  std::string why;
  EXPECT_EQ(tests::attach(options, &why), nullptr);
  return why;
}

TEST(ProcessSlots, KilledProcessesAreReapedAndLivingOnesNever) {
  const TestRegion region;
  std::vector<Child> children;
  for (int i = 0; i < 8; ++i) {
    children.push_back(tests::attached_child(region.options));
    EXPECT_EQ(reap(*region), static_cast<std::uint32_t>(i) + 1);
  }
  for (std::size_t i = 0; i < 8; i += 2) children[i].kill_without_reaping();
  EXPECT_EQ(reap(*region), 4U) << "zombies are dead";
  for (std::size_t i = 1; i < 8; i += 2) {
    children[i].stop();
    EXPECT_EQ(reap(*region), static_cast<std::uint32_t>(4 - i / 2)) << "a stopped process is alive";
    children[i].kill();
  }
  EXPECT_EQ(reap(*region), 0U);
}

TEST(ProcessSlots, ASlotHasTheCommandOfItsProcess) {
  const TestRegion region;
  EXPECT_EQ(region->own_process().command.load(), base::hash_of_own_command());
}

TEST(ProcessSlots, DeadProcessesLeaveNoPins) {
  const TestRegion region;
  RamTier tier(*region);
  ASSERT_TRUE(tests::put(tier, "/a", "pinned"));
  std::uint32_t slot = 0;
  Child child = tests::attached_child(region.options, [](Region& mine) {
    RamTier theirs(mine);
    for (int i = 0; i < 3; ++i) new Pin(tests::find(theirs, "/a"));
  });
  for (slot = 0; slot == region->own_slot(); ++slot) {
  }
  EXPECT_EQ(pins_of(*region, slot), 3U);
  reap(*region);
  EXPECT_EQ(pins_of(*region, slot), 3U);
  child.kill();
  reap(*region);
  EXPECT_EQ(pins_of(*region, slot), 0U);
}

TEST(ProcessSlots, LeasesOfDeadProcessesAreReclaimed) {
  const TestRegion region;
  Child child = tests::attached_child(region.options, [](Region& mine) {
    RamTier theirs(mine);
    (void)tests::put(theirs, "/a", "left");
  });
  child.kill();
  reap(*region);
  for (std::uint32_t i = 0; i < region->layout().segment_count; ++i) {
    const SegmentWord word = SegmentWord::of_word(region->segment_row(i).word.load());
    EXPECT_TRUE(word.state == SegmentState::free || word.owner == k_no_owner) << i;
  }
  RamTier tier(*region);
  ASSERT_TRUE(tests::put(tier, "/b", "mine"));
  EXPECT_EQ(tests::bytes_of(*tests::find(tier, "/a")), "left");
  EXPECT_EQ(SegmentWord::of_word(region->segment_row(0).word.load()).owner, region->own_slot())
      << "a new segment was begun";
}

TEST(ProcessSlots, AProcessWhoseFirstThreadHasEndedIsAlive) {
  if (tests::k_tsan) GTEST_SKIP() << "the end of the first thread confuses TSan";
  const TestRegion region;
  Gate ready;
  Child child([&]() -> int {
    if (tests::attach(region.options) == nullptr) return 1;
    pthread_t thread{};
    pthread_create(
        &thread, nullptr,
        [](void*) -> void* {
          tests::wait_for_death();
          return nullptr;
        },
        nullptr);
    ready.give();
    syscall(SYS_exit, 0);  // ends only this thread
    return 1;
  });
  ASSERT_TRUE(ready.take());
  tests::wait_for_zombie(child.pid());
  EXPECT_EQ(reap(*region), 1U);
}

TEST(ProcessSlots, CountersOfDeadProcessesAreAddedToTheirJobExactlyOnce) {
  const TestRegion region;
  region->stats().count(Counter::bytes_served, 5);
  for (int i = 0; i < 3; ++i) {
    Child child = tests::attached_child(region.options, [](Region& mine) {
      mine.stats().count(Counter::bytes_served, 100);
      mine.stats().hit_latency.add(1000);
    });
    EXPECT_EQ(collect(*region, region->own_job()).totals[Counter::bytes_served],
              5U + 100U * static_cast<unsigned>(i + 1));
    child.kill();
    EXPECT_EQ(collect(*region, region->own_job()).totals[Counter::bytes_served],
              5U + 100U * static_cast<unsigned>(i + 1))
        << "before it is reaped";
    reap(*region);
    reap(*region);
    const JobTotals totals = collect(*region, region->own_job());
    EXPECT_EQ(totals.totals[Counter::bytes_served], 5U + 100U * static_cast<unsigned>(i + 1));
    EXPECT_EQ(totals.totals.hit_latency[base::Histogram::bucket_of(1000)],
              static_cast<std::uint64_t>(i) + 1);
  }
}

TEST(ProcessSlots, JobsAreCountedApart) {
  const TestRegion region;
  auto options = region.options;
  options.job.start_time += 2;
  const int status = tests::run_in_child([&] {
    Region* const mine = tests::attach(options);
    CHILD_CHECK(mine != nullptr && mine->own_job() != region->own_job());
    mine->stats().count(Counter::misses, 7);
    mine->detach();
    return 0;
  });
  ASSERT_EQ(status, 0);
  EXPECT_EQ(collect(*region, region->own_job()).totals[Counter::misses], 0U);
}

TEST(ProcessSlots, FullTableIsReportedInOneLine) {
  const TestRegion region;
  auto fd = region->reopen(O_RDWR);
  ASSERT_TRUE(fd);
  LifeLock others = LifeLock::open(std::move(*fd));
  const std::uint32_t last = region->layout().process_slots - 1;
  for (std::uint32_t i = 0; i < last; ++i) {
    if (i == region->own_slot()) continue;
    ASSERT_TRUE(others.take(i));
    region->process_slot(i).used.store(1);
  }
  region->header().slots_reached.store(last);
  EXPECT_EQ(why_refused(region.options),
            "all 256 process slots of " + region.path() + " are taken: set another CUBESHIM_NAME");
  // The gateway creates no region, and takes the last slot.
  RegionOptions options = region.options;
  options.create = false;
  tests::Child gateway([&] {
    std::string why;
    const auto joined = Region::attach(options, why);
    CHILD_CHECK(joined);
    CHILD_CHECK((*joined)->own_slot() == last);
    (*joined)->detach();
    return 0;
  });
  EXPECT_EQ(gateway.wait(), 0);
}

// Every job needs a row, so there must be rows for far more than 32 jobs.
TEST(ProcessSlots, HundredsOfJobsShareARegion) {
  const TestRegion region;
  const RobustLock lock(&region->header().lifecycle);
  std::vector<SlotClaim> claims;
  for (std::uint32_t i = 1; i < region->layout().process_slots; ++i) {
    auto claim = claim_process_slot(*region, base::current_process(), other_job(region.options, i));
    ASSERT_TRUE(claim) << i;
    EXPECT_TRUE(claim->is_new_job);
    claims.push_back(std::move(*claim));
  }
  EXPECT_EQ(claims.size(), 255U);
}

TEST(ProcessSlots, TooManyJobsAreReportedInOneLine) {
  const TestRegion region;
  for (std::uint32_t i = 0; i < region->layout().job_rows; ++i) {
    region->job_row(i).leader = base::current_process();
    region->job_row(i).last_used = i + 1;
  }
  auto options = region.options;
  options.job.pid_namespace += 1;
  EXPECT_EQ(why_refused(options), region.path() +
                                      " is used by 256 jobs (processes that were started "
                                      "independently of each other), and takes "
                                      "no more: set another CUBESHIM_NAME");
}

// The row of a job must become free even if its leader was in another pid namespace, such as a
// removed container.
TEST(ProcessSlots, JobRowsOfEndedContainersAreReused) {
  const TestRegion region;
  const RobustLock lock(&region->header().lifecycle);
  for (std::uint32_t i = 1; i < region->layout().job_rows + 5; ++i) {
    const auto claim =
        claim_process_slot(*region, base::current_process(), other_job(region.options, i));
    ASSERT_TRUE(claim) << "job " << i;
    release_process_slot(*region, claim->slot);
  }
}

// If the sum over all jobs decreased, Prometheus would mistake this for a new cache.
TEST(ProcessSlots, CountsOfJobsWithReusedRowsStayInTheSum) {
  const TestRegion region;
  const RobustLock lock(&region->header().lifecycle);
  const std::uint32_t jobs = region->layout().job_rows + 5;
  for (std::uint32_t i = 1; i <= jobs; ++i) {
    const auto claim =
        claim_process_slot(*region, base::current_process(), other_job(region.options, i));
    ASSERT_TRUE(claim) << "job " << i;
    base::Stats& stats = region->process_slot(claim->slot).stats;
    stats.count(Counter::misses, i);
    stats.miss_latency.add(1000);
    if (i != jobs) release_process_slot(*region, claim->slot);
  }
  const base::Totals all = collect_all(*region).totals;
  EXPECT_EQ(all[Counter::misses], jobs * (jobs + 1) / 2);
  EXPECT_EQ(all.miss_latency[base::Histogram::bucket_of(1000)], jobs);
}

// The kernel reports a death only one time. A process that only asks whether another is alive
// (SingleFlight) must not consume the report that the reaper needs.
TEST(ProcessSlots, ADeadProcessOfAnotherPidNamespaceStaysDead) {
  const TestRegion region;
  std::uint32_t slot = region->own_slot() == 0 ? 1 : 0;
  Child child = tests::attached_child(region.options, [](Region& mine) {
    mine.process_slot(mine.own_slot()).process.pid_namespace += 1;
  });
  ASSERT_TRUE(process_is_alive(*region, slot));
  EXPECT_EQ(reap(*region), 1U);
  child.kill();
  EXPECT_FALSE(process_is_alive(*region, slot));
  EXPECT_FALSE(process_is_alive(*region, slot));
  EXPECT_EQ(reap(*region), 0U);
}

TEST(ProcessSlots, DeadHolderOfTheLifecycleLockBlocksNoProcess) {
  const TestRegion region;
  const int status = tests::run_in_child([&] {
    Region* const mine = tests::attach(region.options);
    CHILD_CHECK(mine != nullptr);
    const RobustLock lock(&mine->header().lifecycle);
    raise(SIGKILL);
    return 0;
  });
  ASSERT_EQ(status, -SIGKILL);
  EXPECT_EQ(reap(*region), 0U);
  EXPECT_EQ(reap(*region), 0U);
}

TEST(ProcessSlots, AStoppedHolderOfTheLifecycleLockIsAnErrorAfterTwoSeconds) {
  const TestRegion region;
  Child child = tests::attached_child(
      region.options, [](Region& mine) { new RobustLock(&mine.header().lifecycle); });
  child.stop();
  const int status = tests::run_in_child([&] {
    std::string why;
    CHILD_CHECK(tests::attach(region.options, &why) == nullptr);
    CHILD_CHECK(why == region.path() + " is held by a stopped process");
    return 0;
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace cube::cache
