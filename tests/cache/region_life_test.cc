// The processes that create, share and remove a region.
#include <gtest/gtest.h>

#include <cerrno>
#include <thread>
#include <vector>

#include "cache/region/lanes.h"
#include "cache/region/life/process_slots.h"
#include "cache/region/region.h"
#include "tests/support/attached_child.h"
#include "tests/support/child.h"
#include "tests/support/test_region.h"
#include "tests/support/tracee.h"

namespace cube::cache {
namespace {

using tests::Child;
using tests::Gate;
using tests::k_mib;
using tests::RegionName;
using tests::run_in_child;
using tests::TestRegion;

base::ProcessId some_dead_process() {
  base::ProcessId id = base::current_process();
  id.start_time -= 2;
  return id;
}

TEST(RegionLife, SecondProcessSharesTheRegionOfTheFirst) {
  const TestRegion region;
  RamTier tier(*region);
  ASSERT_TRUE(tests::put(tier, "/a", "shared bytes"));
  const int status = run_in_child([&] {
    Region* const mine = tests::attach(region.options);
    CHILD_CHECK(mine != nullptr);
    CHILD_CHECK(mine->own_slot() != region->own_slot());
    CHILD_CHECK(mine->own_job() == region->own_job());
    RamTier other(*mine);
    const Pin pin = tests::find(other, "/a");
    CHILD_CHECK(pin && tests::bytes_of(*pin) == "shared bytes");
    CHILD_CHECK(tests::put(other, "/b", "from the child"));
    mine->detach();
    return 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(tests::bytes_of(*tests::find(tier, "/b")), "from the child");
  EXPECT_TRUE(tests::exists(region.path()));
}

// When a program exits, it detaches before its own last exit handlers run, and these handlers may
// still read.
TEST(RegionLife, SegmentPinnedAtADetachStaysPinnedUntilTheProcessHasEnded) {
  const TestRegion region;
  RamTier tier(*region);
  ASSERT_TRUE(tests::put(tier, "/a", "bytes"));
  const auto is_pinned = [&] {
    for (std::uint32_t process = 0; process < slots_reached(*region); ++process) {
      if (pins_of(*region, process) != 0) return true;
    }
    return false;
  };
  EXPECT_FALSE(is_pinned());
  Pin pin;
  Child child = tests::attached_child(region.options, [&](Region& mine) {
    pin = tests::find(RamTier(mine), "/a");
    CHILD_CHECK(pin);
    mine.detach();
    return 0;
  });
  EXPECT_TRUE(is_pinned());
  child.kill();
  region->reap();
  EXPECT_FALSE(is_pinned());
}

TEST(RegionLife, LastDetachRemovesTheFile) {
  RegionName name;
  name.options.job = some_dead_process();
  Region* const region = tests::attach(name.options);
  ASSERT_NE(region, nullptr);
  EXPECT_TRUE(tests::exists(name.path()));
  region->detach();
  EXPECT_FALSE(tests::exists(name.path()));
}

TEST(RegionLife, KeepLeavesTheFileWithItsRecords) {
  RegionName name;
  name.options.keep = true;
  for (int job = 0; job < 3; ++job) {
    const int status = run_in_child([&] {
      name.options.job = base::current_process();
      Region* const region = tests::attach(name.options);
      CHILD_CHECK(region != nullptr);
      RamTier tier(*region);
      if (job == 0) CHILD_CHECK(tests::put(tier, "/a", "kept"));
      const Pin pin = tests::find(tier, "/a");
      CHILD_CHECK(pin && tests::bytes_of(*pin) == "kept");
      tier.release_lease();
      region->detach();
      return 0;
    });
    ASSERT_EQ(status, 0);
    ASSERT_TRUE(tests::exists(name.path()));
  }
}

TEST(RegionLife, ADeadProcessDoesNotKeepTheFile) {
  TestRegion region;
  Child child = tests::attached_child(region.options);
  child.kill();
  region->detach();
  EXPECT_FALSE(tests::exists(region.path()));
}

TEST(RegionLife, ALivingProcessKeepsTheFile) {
  TestRegion region;
  const Child child = tests::attached_child(region.options);
  region->detach();
  EXPECT_TRUE(tests::exists(region.path()));
}

TEST(RegionLife, RegionOfKilledProcessesIsMadeAgain) {
  RegionName name;
  const int killed = run_in_child([&] {
    name.options.job = base::current_process();
    Region* const region = tests::attach(name.options);
    CHILD_CHECK(region != nullptr);
    RamTier tier(*region);
    CHILD_CHECK(tests::put(tier, "/a", "old"));
    raise(SIGKILL);
    return 0;
  });
  // From now on, any process that attaches to a region can remove this one.
  ASSERT_EQ(killed, -SIGKILL);
  Region* const region = tests::attach(name.options);
  ASSERT_NE(region, nullptr);
  RamTier tier(*region);
  EXPECT_FALSE(tests::find(tier, "/a"));
  region->detach();
}

// `dead` is set before the name is removed. If a process dies in between, it must not leave a name
// that all processes refuse forever.
TEST(RegionLife, DeathBeforeADeadRegionIsUnlinkedBlocksNoProcess) {
  RegionName name;
  name.options.job = some_dead_process();
  tests::Tracee last([&] {
    Region* const region = tests::attach(name.options);
    CHILD_CHECK(region != nullptr);
    region->detach();
    return 0;
  });
  ASSERT_TRUE(last.to_entry_of(SYS_unlinkat));
  last.kill();
  std::string why;
  Region* const region = tests::attach(name.options, &why);
  EXPECT_NE(region, nullptr) << why;
  if (region != nullptr) region->detach();
}

// The first of two jobs to end leaves its row. While this job ends, the second job must not rely on
// it to remove the file, because then neither job would remove it.
TEST(RegionLife, LastToDetachOfTwoJobsThatEndTogetherRemovesTheFile) {
  RegionName name;
  Gate attached, go, detached;
  Child first([&] {
    name.options.job = base::current_process();
    Region* const region = tests::attach(name.options);
    attached.give();
    if (region == nullptr || !go.take()) return 1;
    region->detach();
    detached.give();
    return tests::wait_for_death();  // it is still in its exit handlers
  });
  ASSERT_TRUE(attached.take());
  Region* const region = tests::attach(name.options);
  ASSERT_NE(region, nullptr);
  go.give();
  ASSERT_TRUE(detached.take());
  region->detach();
  EXPECT_FALSE(tests::exists(name.path()));
}

TEST(RegionLife, ManyProcessesThatComeAndGoNeverFailAndLeaveNothing) {
  RegionName name(32 * k_mib);
  name.options.job = some_dead_process();
  std::vector<Child> children;
  for (int c = 0; c < 6; ++c) {
    children.emplace_back([&] {
      for (int i = 0; i < 40; ++i) {
        const int status = run_in_child([&] {
          std::string why;
          Region* const region = tests::attach(name.options, &why);
          if (region == nullptr) std::fprintf(stderr, "attach: %s\n", why.c_str());
          CHILD_CHECK(region != nullptr);
          RamTier tier(*region);
          const std::string path = "/" + std::to_string(getpid());
          const auto put = tests::put(tier, path, path);
          // While this process is attached, no other process can be the last one.
          CHILD_CHECK(put && tests::find(tier, path));
          tier.release_lease();
          return 0;
        });
        if (status != 0) return 1;
      }
      return 0;
    });
  }
  for (auto& child : children) EXPECT_EQ(child.wait(), 0);
  Region* const region = tests::attach(name.options);
  ASSERT_NE(region, nullptr);
  region->detach();
  EXPECT_FALSE(tests::exists(name.path()));
}

TEST(RegionLife, ConcurrentDetachAndAttachNeverSplitTheNode) {
  RegionName name(8 * k_mib);
  name.options.job = some_dead_process();
  for (int round = 0; round < 30; ++round) {
    std::vector<Child> children;
    for (int c = 0; c < 4; ++c) {
      children.emplace_back([&] {
        Region* const region = tests::attach(name.options);
        CHILD_CHECK(region != nullptr);
        // While this process is attached, the name must be its region's.
        CHILD_CHECK(region->reopen(O_RDONLY));
        region->detach();
        return 0;
      });
    }
    for (auto& child : children) ASSERT_EQ(child.wait(), 0) << "round " << round;
    ASSERT_FALSE(tests::exists(name.path())) << "round " << round;
  }
}

// The slot is given back, and its mutex must not stay locked by a thread of the process that has
// left.
TEST(RegionLife, DetachUnlocksTheMutexOfItsSlot) {
  TestRegion region;
  const Child first = tests::attached_child(region.options, [](Region& mine) { mine.detach(); });
  Child second = tests::attached_child(region.options);
  std::uint32_t slot = 0;
  while (region->process_slot(slot).process.pid != static_cast<std::uint32_t>(second.pid())) ++slot;
  second.kill();
  EXPECT_FALSE(process_is_alive(*region, slot)) << "held up by a process that has left";
}

}  // namespace
}  // namespace cube::cache
