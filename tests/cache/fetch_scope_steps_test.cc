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
// ThreadSanitizer's runtime delays signals, and runs handlers inside its own calls, with all
// signals blocked.
constexpr const char* k_no_jumps = "ThreadSanitizer delivers signals later than the kernel";

sigjmp_buf g_back;

[[gnu::noinline]] void fetch(Region& region, const SingleFlight::Hold& turn,
                             const SingleFlight::Hold& second) {
  FetchScope scope;
  scope.hold(turn, second);
  scope.begin_wait(region.own_process());
}

int jump_and_go_on(const RegionOptions& options) {
  Region* const own = tests::attach(options);
  CHILD_CHECK(own != nullptr);
  SingleFlight flights(*own);
  SingleFlight::Ticket ticket, second;
  CHILD_CHECK(flights.begin(k_hash, ticket) == SingleFlight::Outcome::mine);
  CHILD_CHECK(flights.begin(k_hash + 4, second) == SingleFlight::Outcome::mine);
  signal(SIGUSR1, [](int) { siglongjmp(g_back, 1); });
  if (sigsetjmp(g_back, 1) == 0) {
    raise(SIGSTOP);
    fetch(*own, ticket.hold(), second.hold());
    signal(SIGUSR1, SIG_IGN);
    return k_whole;
  }
  // Ends the rest of the fetch, even if only part of it had been recorded.
  CHILD_CHECK(!FetchScope::is_open());
  fetch(*own, ticket.hold(), second.hold());
  return k_jumped;
}

TEST(FetchScopeSteps, NextFetchEndsAScopeLeftByAJumpAtAnyInstruction) {
  if (CUBE_TSAN) GTEST_SKIP() << k_no_jumps;
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

[[gnu::noinline]] void hold_and_jump(const SingleFlight::Hold& first,
                                     const SingleFlight::Hold& second) {
  FetchScope scope;
  scope.hold(first, second);
  raise(SIGUSR1);
}

TEST(FetchScopeSteps, NextFetchEndsBothFlightsOfAScopeLeftByAJump) {
  if (CUBE_TSAN) GTEST_SKIP() << k_no_jumps;
  const tests::TestRegion region;
  SingleFlight flights(*region);
  SingleFlight::Ticket first, second;
  constexpr std::uint64_t k_second = k_hash + (std::uint64_t{1} << 32);
  ASSERT_EQ(flights.begin(k_hash, first), SingleFlight::Outcome::mine);
  ASSERT_EQ(flights.begin(k_second, second), SingleFlight::Outcome::mine);
  const auto before = signal(SIGUSR1, [](int) { siglongjmp(g_back, 1); });
  if (sigsetjmp(g_back, 1) == 0) hold_and_jump(first.hold(), second.hold());
  signal(SIGUSR1, before);
  EXPECT_FALSE(FetchScope::is_open());
  EXPECT_FALSE(flights.is_under_way(k_hash));
  EXPECT_FALSE(flights.is_under_way(k_second));
}

}  // namespace
}  // namespace cube::cache
