// What killed processes have left is taken away by the next job of the user, whatever its name.
#include <gtest/gtest.h>

#include <csignal>

#include "cache/ram/region.h"
#include "tests/support/attached_child.h"
#include "tests/support/child.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

using tests::Child;
using tests::RegionName;
using tests::run_in_child;

enum class Age { young, old };

// Of an older one than any that is spared because its maker may be about to join it.
void leave_behind(RegionName& name, Age age) {
  ASSERT_EQ(run_in_child([&] {
              name.options.job = base::current_process();
              Region* const region = tests::attach(name.options);
              CHILD_CHECK(region != nullptr);
              if (age == Age::old) region->header().created_ns = 1;
              raise(SIGKILL);
              return 0;
            }),
            -SIGKILL);
  // Any process of the user that attaches meanwhile, also one of another test, may have taken an old one away already.
}

void begin_a_job() {
  const RegionName other;
  ASSERT_EQ(run_in_child([&] {
              Region* const region = tests::attach(other.options);
              CHILD_CHECK(region != nullptr);
              region->detach();
              return 0;
            }),
            0);
}

// Once a bug: it stayed in memory until a job of the same name came.
TEST(RegionSweep, TakesAwayWhatTheKilledHaveLeft) {
  RegionName name;
  leave_behind(name, Age::old);
  begin_a_job();
  EXPECT_FALSE(tests::exists(name.path()));
}

TEST(RegionSweep, SparesOneThatIsToBeKept) {
  RegionName name;
  name.options.keep = true;
  leave_behind(name, Age::old);
  begin_a_job();
  EXPECT_TRUE(tests::exists(name.path()));
}

TEST(RegionSweep, SparesOneThatMayStillBeJoined) {
  RegionName name;
  leave_behind(name, Age::young);
  begin_a_job();
  EXPECT_TRUE(tests::exists(name.path()));
}

TEST(RegionSweep, SparesOneThatSomebodyUses) {
  const RegionName name;
  const Child user = tests::attached_child(name.options, [](Region& mine) { mine.header().created_ns = 1; });
  begin_a_job();
  EXPECT_TRUE(tests::exists(name.path()));
}

TEST(RegionSweep, SparesOneWhoseReportIsDue) {
  RegionName name;
  const base::ProcessId leader = base::current_process();  // lives, and has not reported
  ASSERT_EQ(run_in_child([&] {
              name.options.job = leader;
              Region* const region = tests::attach(name.options);
              CHILD_CHECK(region != nullptr);
              region->header().created_ns = 1;
              raise(SIGKILL);
              return 0;
            }),
            -SIGKILL);
  begin_a_job();
  EXPECT_TRUE(tests::exists(name.path()));
}

}  // namespace
}  // namespace cube::cache
