// A handler leaves a fetch by a jump, at each instruction that records or clears the fetch's
// flight.
#include <gtest/gtest.h>

#include <csetjmp>
#include <csignal>

#include "cache/base/sanitizers.h"
#include "cache/region/fetch_scope.h"
#include "tests/support/test_region.h"
#include "tests/support/tracee.h"

namespace cube::cache {
namespace {

using tests::Tracee;

constexpr std::uint64_t k_hash = 0x123456789abcdef0;
// The exit statuses of a child.
constexpr int k_jumped = 10, k_whole = 11;

sigjmp_buf g_back;

[[gnu::noinline]] void fetch(Region& region, const SingleFlight::Hold& turn) {
  FetchScope scope;
  scope.hold(turn);
  scope.begin_wait(region.own_process());
}

int jump_and_go_on(const RegionOptions& options) {
  Region* const own = tests::attach(options);
  CHILD_CHECK(own != nullptr);
  SingleFlight flights(*own);
  SingleFlight::Ticket ticket;
  CHILD_CHECK(flights.begin(k_hash, ticket) == SingleFlight::Outcome::mine);
  signal(SIGUSR1, [](int) { siglongjmp(g_back, 1); });
  if (sigsetjmp(g_back, 1) == 0) {
    raise(SIGSTOP);
    fetch(*own, ticket.hold());
    signal(SIGUSR1, SIG_IGN);
    return k_whole;
  }
  // Ends the rest of the fetch, even if only part of it had been recorded.
  CHILD_CHECK(!FetchScope::is_open());
  fetch(*own, ticket.hold());
  return k_jumped;
}

TEST(FetchScopeSteps, NextFetchEndsAScopeLeftByAJumpAtAnyInstruction) {
  // ThreadSanitizer's runtime delays signals, and runs handlers inside its own calls, with all
  // signals blocked.
  if (CUBE_TSAN) GTEST_SKIP() << "ThreadSanitizer delivers signals later than the kernel";
  const tests::TestRegion region;
  int jumps = 0;
  for (int steps = 0;; ++steps) {
    Tracee child([&] { return jump_and_go_on(region.options); });
    ASSERT_TRUE(child.to_stop());
    for (int i = 0; i < steps && child.step(); ++i) {
    }
    if (!child.is_alive()) break;
    child.send(SIGUSR1);
    while (child.to_stop()) {
    }
    if (child.exit_status() == k_whole) break;
    ASSERT_EQ(child.exit_status(), k_jumped) << steps << " instructions on";
    ++jumps;
  }
  EXPECT_GT(jumps, 30);
}

}  // namespace
}  // namespace cube::cache
