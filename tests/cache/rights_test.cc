// A tier serves a file to a process without an open at the origin if a process with the same rights
// has opened the file.
#include "cache/tier/rights.h"
#include "cache/base/sanitizers.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "tests/support/child.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

TEST(Rights, MatchOnlyARecordOfTheSameRights) {
  tests::TestRegion region;
  RamTier tier(*region);
  const auto pin = tests::put(tier, "/f", "bytes");
  ASSERT_TRUE(pin);
  EXPECT_TRUE(is_proven_open(**pin, *region));
  Record other;
  std::memcpy(static_cast<void*>(&other), &**pin, sizeof other);
  ++other.rights;
  EXPECT_FALSE(is_proven_open(other, *region));
  other.rights = 0;
  EXPECT_FALSE(is_proven_open(other, *region)) << "of an earlier version";
}

// Returns whether this process has the same rights as a child in which `change` was called.
template <typename Change>
bool are_the_same_after(Change&& change) {
  const std::uint64_t before = base::current_rights();
  tests::Child child([&] {
    if (!change()) return 2;
    return base::current_rights() == before ? 0 : 1;
  });
  const int status = child.wait();
  EXPECT_NE(status, 2);
  return status == 0;
}

TEST(Rights, DifferWithOtherGroupsOfAnyNumber) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const auto with_last = [](std::size_t count, gid_t last) {
    return [=] {
      std::vector<gid_t> groups(count);
      for (std::size_t i = 0; i < count; ++i) groups[i] = static_cast<gid_t>(10'000 + i);
      groups.back() = last;
      return setgroups(count, groups.data()) == 0;
    };
  };
  EXPECT_TRUE(are_the_same_after([] { return true; }));
  EXPECT_FALSE(are_the_same_after(with_last(1, 77)));
  tests::Child child([&] {
    CHILD_CHECK(with_last(60'000, 200'000)());
    CHILD_CHECK(are_the_same_after(with_last(60'000, 200'000)));
    CHILD_CHECK(!are_the_same_after(with_last(60'000, 200'001)));
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(Rights, DifferInAnotherUserNamespace) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  if (&__tsan_init != nullptr)
    GTEST_SKIP() << "a process with a thread, as ThreadSanitizer's, may not change it";
  EXPECT_FALSE(are_the_same_after([] { return unshare(CLONE_NEWUSER) == 0; }));
}

}  // namespace
}  // namespace cube::cache
