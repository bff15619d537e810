// The flight of a fetch that proceeds as a program reads. Other processes wait for it only as long
// as bytes arrive.
#include <gtest/gtest.h>

#include "cache/region/single_flight.h"
#include "tests/support/attached_child.h"
#include "tests/support/child.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

using Outcome = SingleFlight::Outcome;
using tests::Child;
using tests::Gate;
using tests::TestRegion;

constexpr std::uint64_t k_hash = 1234, k_hour = 3'600'000'000'000;
// The patience of a waiter. Without the rule under test, the waiter would wait until the test ends.
constexpr SingleFlight::Patience k_without_progress{k_hour, k_hour, 1'000'000};
constexpr SingleFlight::Patience k_with_progress{k_hour, k_hour, k_hour};

// A child that has the flight, reports so, and calls `then` with it.
template <typename Then>
Child holding_child(const TestRegion& region, Gate& ready, Then&& then) {
  Child child([&] {
    Region* const mine = tests::attach(region.options);
    CHILD_CHECK(mine != nullptr);
    SingleFlight flights(*mine);
    SingleFlight::Ticket ticket;
    CHILD_CHECK(flights.begin(k_hash, ticket) == Outcome::mine);
    const SingleFlight::Hold hold = ticket.come_in_parts();
    CHILD_CHECK(hold.slot != nullptr);
    ready.give();
    return then(hold);
  });
  EXPECT_TRUE(ready.take());
  return child;
}

TEST(PartsFlight, OwnProcessDoesNotWait) {
  const TestRegion region;
  SingleFlight flights(*region, k_with_progress);
  SingleFlight::Ticket first, second;
  ASSERT_EQ(flights.begin(k_hash, first), Outcome::mine);
  const SingleFlight::Hold hold = first.come_in_parts();
  EXPECT_EQ(first.hold().slot, nullptr) << "it is the fill's now";
  EXPECT_EQ(flights.begin(k_hash, second), Outcome::too_long);
  hold.end_copy();
  EXPECT_EQ(flights.begin(k_hash, second), Outcome::mine);
}

TEST(PartsFlight, WaitForAnIdleHolderIsShort) {
  const TestRegion region;
  Gate ready;
  const Child child = holding_child(
      region, ready, [](const SingleFlight::Hold&) { return tests::wait_for_death(); });
  SingleFlight flights(*region, k_without_progress);
  SingleFlight::Ticket ticket;
  EXPECT_EQ(flights.begin(k_hash, ticket), Outcome::too_long);
  EXPECT_EQ(flights.begin(k_hash, ticket), Outcome::too_long);
}

TEST(PartsFlight, WaiterIsCountedAndStaysWhileBytesArrive) {
  const TestRegion region;
  Gate ready;
  Child child = holding_child(region, ready, [](const SingleFlight::Hold& hold) {
    for (int part = 0; part < 20; ++part) {
      while (!hold.is_waited_for()) sched_yield();
      hold.tell_progress();
    }
    hold.end_copy();
    return 0;
  });
  SingleFlight flights(*region, k_with_progress);
  SingleFlight::Ticket ticket;
  EXPECT_EQ(flights.begin(k_hash, ticket), Outcome::waited);
  EXPECT_EQ(child.wait(), 0);
}

TEST(PartsFlight, AKilledHolderIsTakenOver) {
  const TestRegion region;
  Gate ready;
  Child child = holding_child(region, ready,
                              [](const SingleFlight::Hold&) { return tests::wait_for_death(); });
  child.kill_without_reaping();
  SingleFlight flights(*region, k_without_progress);
  SingleFlight::Ticket ticket;
  EXPECT_EQ(flights.begin(k_hash, ticket), Outcome::mine);
}

TEST(PartsFlight, EndingATakenOverFlightEndsNoOther) {
  const TestRegion region;
  SingleFlight flights(*region);
  SingleFlight::Ticket first, second;
  ASSERT_EQ(flights.begin(k_hash, first), Outcome::mine);
  const SingleFlight::Hold before = first.hold();
  const SingleFlight::Hold hold = first.come_in_parts();
  before.end_copy();
  EXPECT_EQ(hold.slot->word.load(), hold.word)
      << "what a jump has left behind is not the fill's flight";
  hold.end_copy();
  EXPECT_EQ(hold.slot->word.load(), 0U);
}

}  // namespace
}  // namespace cube::cache
