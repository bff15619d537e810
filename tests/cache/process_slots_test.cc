// Who is attached: living processes are never taken for dead, the dead are reaped, and their counters are kept.
#include "cache/ram/process_slots.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <thread>
#include <vector>

#include "cache/job_report.h"
#include "cache/ram/robust_lock.h"
#include "cache/ram/segments.h"
#include "tests/support/attached_child.h"
#include "tests/support/child.h"
#include "tests/support/sanitizers.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

using base::Counter;
using tests::Child;
using tests::Gate;
using tests::TestRegion;

std::uint32_t reap(Region& region) {
  const RobustLock lock(&region.header().lifecycle);
  EXPECT_TRUE(lock);
  return reap_dead_processes(region, region.own_slot());
}

TEST(ProcessSlots, TheKilledAreReapedAndTheLivingNever) {
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

TEST(ProcessSlots, TheDeadLeaveNoPins) {
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
  const auto pins_of = [&](std::uint32_t s) {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < region->layout().segment_count; ++i) sum += region->pin_row(s)[i].load();
    return sum;
  };
  EXPECT_EQ(pins_of(slot), 3U);
  reap(*region);
  EXPECT_EQ(pins_of(slot), 3U);
  child.kill();
  reap(*region);
  EXPECT_EQ(pins_of(slot), 0U);
}

TEST(ProcessSlots, LeasesOfTheDeadAreTakenOver) {
  const TestRegion region;
  Child child = tests::attached_child(region.options, [](Region& mine) {
    RamTier theirs(mine);
    (void)tests::put(theirs, "/a", "left");
  });
  child.kill();
  reap(*region);
  for (std::uint32_t i = 0; i < region->layout().segment_count; ++i) {
    const SegmentWord word = SegmentWord::unpack(region->segment_row(i).word.load());
    EXPECT_TRUE(word.state == SegmentState::free || word.owner == k_no_owner) << i;
  }
  RamTier tier(*region);
  ASSERT_TRUE(tests::put(tier, "/b", "mine"));
  EXPECT_EQ(tests::bytes_of(*tests::find(tier, "/a")), "left");
  EXPECT_EQ(SegmentWord::unpack(region->segment_row(0).word.load()).owner, region->own_slot()) << "a new segment was begun";
}

TEST(ProcessSlots, AThreadThatEndsWhileItsProcessLivesIsNotTheProcess) {
  const TestRegion region;
  Gate ready, go;
  Child child([&] {
    Region* mine = nullptr;
    std::thread([&] { mine = tests::attach(region.options); }).join();
    ready.give();
    if (mine == nullptr || !go.take()) return 1;
    // The next thread of the process takes over, and ends too.
    std::thread([&] { keep_alive(*mine); }).join();
    ready.give();
    if (!go.take()) return 1;
    keep_alive(*mine);
    ready.give();
    return tests::wait_for_death();
  });
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(ready.take());
    EXPECT_EQ(reap(*region), 1U) << i;
    EXPECT_EQ(reap(*region), 1U) << i;
    if (i < 2) go.give();
  }
  child.kill();
  EXPECT_EQ(reap(*region), 0U);
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
    syscall(SYS_exit, 0);  // of this thread alone
    return 1;
  });
  ASSERT_TRUE(ready.take());
  tests::wait_for_zombie(child.pid());
  EXPECT_EQ(reap(*region), 1U);
}

TEST(ProcessSlots, CountersOfTheDeadGoToTheirJobExactlyOnce) {
  const TestRegion region;
  region->stats().count(Counter::bytes_served, 5);
  for (int i = 0; i < 3; ++i) {
    Child child = tests::attached_child(region.options, [](Region& mine) {
      mine.stats().count(Counter::bytes_served, 100);
      mine.stats().hit_latency.add(1000);
    });
    EXPECT_EQ(collect(*region, region->own_job()).totals[Counter::bytes_served], 5U + 100U * static_cast<unsigned>(i + 1));
    child.kill();
    EXPECT_EQ(collect(*region, region->own_job()).totals[Counter::bytes_served], 5U + 100U * static_cast<unsigned>(i + 1))
        << "before it is reaped";
    reap(*region);
    reap(*region);
    const JobTotals totals = collect(*region, region->own_job());
    EXPECT_EQ(totals.totals[Counter::bytes_served], 5U + 100U * static_cast<unsigned>(i + 1));
    EXPECT_EQ(totals.totals.hit_latency[base::Histogram::bucket_of(1000)], static_cast<std::uint64_t>(i) + 1);
  }
}

TEST(ProcessSlots, JobsAreCountedApart) {
  const TestRegion region;
  auto options = region.options;
  options.job.start_time += 1;
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

TEST(ProcessSlots, AProcessThatExecsTakesItsOwnSlotAgain) {
  const TestRegion region;
  // What is left of the old image: a slot of the same process, whose mutex has lost its holder.
  Gate ready;
  Child child([&] {
    std::uint32_t slot = 0;
    // Exec ends all threads, and with them the hold on the slot.
    std::thread([&] {
      Region* const mine = tests::attach(region.options);
      if (mine == nullptr) return;
      slot = mine->own_slot();
      mine->stats().count(Counter::bytes_served, 3);
      RamTier tier(*mine);
      (void)tests::put(tier, "/a", "of the old image");
      new Pin(tests::find(tier, "/a"));
    }).join();
    Region* const mine = tests::attach(region.options);
    CHILD_CHECK(mine != nullptr);
    CHILD_CHECK(mine->own_slot() == slot);
    CHILD_CHECK(mine->stats().counters[static_cast<std::size_t>(Counter::bytes_served)].load() == 0);
    for (std::uint32_t i = 0; i < mine->layout().segment_count; ++i) CHILD_CHECK(mine->pin_row(slot)[i].load() == 0);
    ready.give();
    return tests::wait_for_death();
  });
  ASSERT_TRUE(ready.take());
  EXPECT_EQ(reap(*region), 1U);
  EXPECT_EQ(collect(*region, region->own_job()).totals[Counter::bytes_served], 3U);
}

// Once a bug: where a slot before its own had become free, the new image took that one, and what the old one held was held for
// as long as the process lived.
TEST(ProcessSlots, AfterAnExecNothingIsHeldThoughAnotherSlotIsFree) {
  const TestRegion region;
  const int status = tests::run_in_child([&] {
    constexpr std::uint32_t k_old = 5;
    base::ProcessId self = base::current_process();
    ProcessSlot& old = region->process_slot(k_old);
    old.process = self;
    old.generation.store(3);
    old.used.store(1);
    region->pin_row(k_old)[0].store(1);
    region->flight_slot(7).word.store((3ULL << 12) | (k_old + 1));
    const RobustLock lock(&region->header().lifecycle);
    const auto claim = claim_process_slot(*region, self, region.options.job);
    CHILD_CHECK(claim && claim->slot < k_old);
    CHILD_CHECK(old.used.load() == 0);
    CHILD_CHECK(region->pin_row(k_old)[0].load() == 0);
    CHILD_CHECK(region->flight_slot(7).word.load() == 0);
    return 0;
  });
  EXPECT_EQ(status, 0);
}

TEST(ProcessSlots, AllTakenByTheLivingIsOneClearLine) {
  const TestRegion region;
  const RobustLock lock(&region->header().lifecycle);
  for (std::uint32_t i = 0; i < k_process_slots; ++i) {
    if (i == region->own_slot()) continue;
    region->process_slot(i).process = base::current_process();
    region->process_slot(i).process.pid_namespace += 1;  // unknown: not dead
    region->process_slot(i).used.store(1);
  }
  base::ProcessId self = base::current_process();
  self.start_time += 7;
  const auto claim = claim_process_slot(*region, self, region.options.job);
  ASSERT_FALSE(claim);
  EXPECT_EQ(claim.error().value, EUSERS);
}

// Once a bug: the row of a job whose leader was in another pid namespace (a container that is gone) is never free again.
TEST(ProcessSlots, JobRowsOfContainersThatAreGoneAreUsedAgain) {
  const TestRegion region;
  for (std::uint32_t i = 0; i < k_job_rows + 5; ++i) {
    auto options = region.options;
    options.job.pid_namespace += 1;
    options.job.pid += i;
    const int status = tests::run_in_child([&] {
      std::string why;
      Region* const mine = tests::attach(options, &why);
      if (mine == nullptr) std::fprintf(stderr, "job %u: %s\n", i, why.c_str());
      CHILD_CHECK(mine != nullptr);
      mine->detach();
      return 0;
    });
    ASSERT_EQ(status, 0) << "job " << i;
  }
}

// Once a bug: the kernel tells of a death once; whoever only asks (SingleFlight) takes the news away from the reaper.
TEST(ProcessSlots, ADeadProcessOfAnotherPidNamespaceStaysDead) {
  const TestRegion region;
  std::uint32_t slot = region->own_slot() == 0 ? 1 : 0;
  Child child =
      tests::attached_child(region.options, [](Region& mine) { mine.process_slot(mine.own_slot()).process.pid_namespace += 1; });
  ASSERT_TRUE(process_is_alive(*region, slot));
  EXPECT_EQ(reap(*region), 1U);
  child.kill();
  EXPECT_FALSE(process_is_alive(*region, slot));
  EXPECT_FALSE(process_is_alive(*region, slot));
  EXPECT_EQ(reap(*region), 0U);
}

TEST(ProcessSlots, ADeadHolderOfTheLifecycleLockHoldsUpNobody) {
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
  Child child = tests::attached_child(region.options, [](Region& mine) { new RobustLock(&mine.header().lifecycle); });
  child.stop();
  const int status = tests::run_in_child([&] {
    std::string why;
    CHILD_CHECK(tests::attach(region.options, &why) == nullptr);
    CHILD_CHECK(why == region.path() + " is held by a process that does not run");
    return 0;
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace cube::cache
