// Only one process of the node fetches a path, even if the fetching process dies or is stopped.
#include "cache/region/single_flight.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "cache/base/clock.h"
#include "cache/region/life/process_slots.h"
#include "tests/support/attached_child.h"
#include "tests/support/child.h"
#include "tests/support/sanitizers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"
#include "tests/support/tracee.h"

namespace cube::cache {
namespace {

using Outcome = SingleFlight::Outcome;
using tests::Child;
using tests::Gate;
using tests::TestRegion;

constexpr std::uint64_t k_second = 1'000'000'000;

// A child that has the flight for `hash` and waits.
Child fetching_child(const TestRegion& region, std::uint64_t hash, Gate& ready) {
  Child child([&] {
    Region* const mine = tests::attach(region.options);
    CHILD_CHECK(mine != nullptr);
    SingleFlight flights(*mine);
    SingleFlight::Ticket ticket;
    CHILD_CHECK(flights.begin(hash, ticket) == Outcome::mine);
    ready.give();
    return tests::wait_for_death();
  });
  EXPECT_TRUE(ready.take());
  return child;
}

struct TimedOutcome {
  Outcome flight;
  std::uint64_t took_ns;
};
TimedOutcome begin_timed(const TestRegion& region, std::uint64_t hash,
                         const SingleFlight::Patience& patience = {}) {
  SingleFlight flights(*region, patience);
  SingleFlight::Ticket ticket;
  const std::uint64_t began = base::monotonic_ns();
  const Outcome flight = flights.begin(hash, ticket);
  return {flight, base::monotonic_ns() - began};
}

TEST(SingleFlight, FreeFlightIsOursAndCanBeTakenAgain) {
  const TestRegion region;
  SingleFlight flights(*region);
  for (int i = 0; i < 3; ++i) {
    SingleFlight::Ticket ticket;
    EXPECT_EQ(flights.begin(42, ticket), Outcome::mine);
  }
  for (std::uint32_t i = 0; i < k_flight_slots; ++i)
    EXPECT_EQ(region->flight_slot(i).word.load(), 0U);
}

TEST(SingleFlight, ForkedChildLeavesTheFlightsOfItsParentAlone) {
  const TestRegion region;
  SingleFlight flights(*region);
  SingleFlight::Ticket first, second;
  ASSERT_EQ(flights.begin(42, first), Outcome::mine);
  ASSERT_EQ(flights.begin(43, second), Outcome::mine);
  EXPECT_EQ(tests::run_in_child([&] {
              SingleFlight::forget_flights();
              CHILD_CHECK(!first.hold().is_held());
              CHILD_CHECK(second.come_in_parts().slot == nullptr);
              first = {};
              return 0;
            }),
            0);
  EXPECT_TRUE(first.hold().is_held());
  EXPECT_TRUE(second.come_in_parts().is_held());
}

TEST(SingleFlight, AcceptsHashesOfZerosAndOnes) {
  const TestRegion region;
  SingleFlight flights(*region);
  for (const std::uint64_t hash :
       {0ULL, 1ULL, 0xffffULL, static_cast<unsigned long long>(UINT64_MAX)}) {
    SingleFlight::Ticket ticket;
    EXPECT_EQ(flights.begin(hash, ticket), Outcome::mine);
  }
}

TEST(SingleFlight, PathsThatShareASlotDoNotWaitForEachOther) {
  const TestRegion region;
  SingleFlight flights(*region);
  const std::uint64_t a = 5, b = a + (std::uint64_t{k_flight_slots} << 16);
  SingleFlight::Ticket first, second;
  EXPECT_EQ(flights.begin(a, first), Outcome::mine);
  EXPECT_EQ(flights.begin(b, second), Outcome::mine);
  second = {};
  // The first still has its flight.
  EXPECT_NE(region->flight_slot(5).word.load(), 0U);
}

// Only one process fetches a path, even while another path occupies its slot.
TEST(SingleFlight, PathIsFetchedByOneThoughItsSlotIsTaken) {
  const TestRegion region;
  SingleFlight flights(*region);
  const std::uint64_t step = std::uint64_t{k_flight_slots} << 16;
  SingleFlight::Ticket other, first, second;
  EXPECT_EQ(flights.begin(5, other), Outcome::mine);
  EXPECT_EQ(flights.begin(5 + step, first), Outcome::mine);
  EXPECT_EQ(flights.begin_prefetch(5 + step, second), SingleFlight::Prefetch::demanded);
  // The flight of `first` is found even if the path's preferred slot is free again.
  other = {};
  EXPECT_EQ(flights.begin_prefetch(5 + step, second), SingleFlight::Prefetch::demanded);
  first = {};
  EXPECT_EQ(flights.begin_prefetch(5 + step, second), SingleFlight::Prefetch::mine);
}

TEST(SingleFlight, PathDoesNotWaitIfAllItsSlotsAreTaken) {
  const TestRegion region;
  SingleFlight flights(*region);
  const std::uint64_t step = std::uint64_t{k_flight_slots} << 16;
  SingleFlight::Ticket others[4], first, second;
  for (std::uint64_t i = 0; i < 4; ++i)
    EXPECT_EQ(flights.begin(5 + i * step, others[i]), Outcome::mine);
  EXPECT_EQ(flights.begin(5 + 4 * step, first), Outcome::mine);
  EXPECT_EQ(flights.begin(5 + 4 * step, second), Outcome::mine);
}

TEST(SingleFlight, OnlyOneOfManyProcessesFetches) {
  const TestRegion region;
  const tests::TempDir dir;
  const std::string path = dir.write("f", std::string(10'000, 'x'));
  for (int round = 0; round < 10; ++round) {
    const std::string key =
        path + std::string(static_cast<std::size_t>(round), '/');  // another key, the same file
    Gate ready, go, done, end;
    std::vector<Child> children;
    for (int c = 0; c < 6; ++c) {
      children.emplace_back([&] {
        FileCache* const cache =
            tests::attach_cache(tests::config_for(region.options), region.options.job);
        CHILD_CHECK(cache != nullptr);
        ready.give();
        CHILD_CHECK(go.take());
        const OpenOutcome outcome = cache->open({.key = key, .path = path.c_str()});
        CHILD_CHECK(outcome.pin && outcome.pin->data_size == 10'000);
        done.give();
        CHILD_CHECK(end.take());
        const auto count = [&](base::Counter n) { return tests::counted(*cache, n); };
        CHILD_CHECK(count(base::Counter::hits_ram) + count(base::Counter::misses) == 1);
        return static_cast<int>(count(base::Counter::misses)) * 100;
      });
    }
    ASSERT_TRUE(ready.take(6));
    go.give(6);
    ASSERT_TRUE(done.take(6));
    end.give(6);
    int fetched = 0;
    for (auto& child : children) fetched += child.wait();
    // Status 100: exactly one process fetched.
    ASSERT_EQ(fetched, 100) << "round " << round;
  }
}

TEST(SingleFlight, ThreadsOfOneProcessTakeTurns) {
  const TestRegion region;
  SingleFlight flights(*region);
  std::atomic<int> inside{0}, most{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        SingleFlight::Ticket ticket;
        const Outcome flight = flights.begin(99, ticket);
        EXPECT_NE(flight, Outcome::too_long);
        const int now = inside.fetch_add(1) + 1;
        if (now > most.load()) most.store(now);
        inside.fetch_sub(1);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(most.load(), 1);
}

// A waiter would check again, and give up, only long after the test has failed.
constexpr SingleFlight::Patience k_endless{.look_again_ns = 300 * k_second,
                                           .longest_ns = 600 * k_second};
// A waiter gives up soon.
constexpr SingleFlight::Patience k_short{.look_again_ns = k_second / 100,
                                         .longest_ns = k_second / 20};

TEST(SingleFlight, AWaiterIsWokenWhenTheFetchEnds) {
  const TestRegion region;
  SingleFlight flights(*region);
  for (int round = 0; round < 10; ++round) {
    SingleFlight::Ticket ticket;
    ASSERT_EQ(flights.begin(7, ticket), Outcome::mine);
    TimedOutcome waited{};
    std::thread waiter([&] { waited = begin_timed(region, 7, k_endless); });
    while (region->flight_slot(7).waiting.load() == 0) sched_yield();
    ticket = {};
    waiter.join();
    ASSERT_EQ(waited.flight, Outcome::waited);
    ASSERT_LT(waited.took_ns, k_endless.look_again_ns / 2)
        << "not woken: it has looked again by itself";
  }
}

// The fetching thread may have left the fetch by a jump and continue with other work.
TEST(SingleFlight, FlightIsNotAwaitedAgainAfterATimeout) {
  const TestRegion region;
  SingleFlight flights(*region);
  SingleFlight::Ticket ticket;
  ASSERT_EQ(flights.begin(7, ticket), Outcome::mine);
  EXPECT_EQ(begin_timed(region, 7, k_short).flight, Outcome::too_long);
  const TimedOutcome next = begin_timed(region, 7, k_endless);
  EXPECT_EQ(next.flight, Outcome::too_long);
  EXPECT_LT(next.took_ns, k_endless.look_again_ns / 2);
  // Others wait for the next fetch again.
  ticket = {};
  EXPECT_EQ(region->flight_slot(7).waiting.load(), 0U);
  EXPECT_EQ(begin_timed(region, 7, k_endless).flight, Outcome::mine);
}

TEST(SingleFlight, WaitsForOneFlightOfAStoppedFetcher) {
  const TestRegion region;
  SingleFlight flights(*region);
  SingleFlight::Ticket tickets[3];
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(flights.begin(7 + i, tickets[i]), Outcome::mine);
  EXPECT_EQ(begin_timed(region, 7, k_short).flight, Outcome::too_long);
  EXPECT_EQ(begin_timed(region, 8, k_endless).flight, Outcome::too_long);
  // The owner has ended a flight, so it makes progress.
  tickets[2] = {};
  EXPECT_EQ(begin_timed(region, 7, k_endless).flight, Outcome::too_long)
      << "that one is still overdue";
  std::thread waiter([&] { EXPECT_EQ(begin_timed(region, 8, k_endless).flight, Outcome::waited); });
  while (region->flight_slot(8).waiting.load() == 0) std::this_thread::yield();
  tickets[1] = {};
  waiter.join();
}

TEST(SingleFlight, WaitsForTheEndOfOneFlightOfAStoppedFetcher) {
  const TestRegion region;
  SingleFlight flights(*region);
  SingleFlight::Ticket tickets[2];
  for (std::uint64_t i = 0; i < 2; ++i) ASSERT_EQ(flights.begin(7 + i, tickets[i]), Outcome::mine);
  EXPECT_FALSE(SingleFlight(*region, k_short).wait_for_end(7));
  EXPECT_FALSE(SingleFlight(*region, k_endless).wait_for_end(8));
  EXPECT_EQ(region->flight_slot(8).waiting.load(), 0U);
}

TEST(SingleFlight, ProgressingFetcherIsNotTakenForStopped) {
  std::uint64_t stuck_at = 1;
  // On a busy machine the patience may end before this thread continues.
  for (std::uint64_t patience_ns = k_second / 20; stuck_at != 0 && patience_ns < 100 * k_second;
       patience_ns *= 4) {
    const TestRegion region;
    SingleFlight flights(*region);
    SingleFlight::Ticket hangs, other;
    ASSERT_EQ(flights.begin(7, hangs), Outcome::mine);
    const SingleFlight::Patience soon{.look_again_ns = k_second / 100, .longest_ns = patience_ns};
    std::thread waiter([&] { EXPECT_EQ(begin_timed(region, 7, soon).flight, Outcome::too_long); });
    while (region->flight_slot(7).waiting.load() == 0) std::this_thread::yield();
    EXPECT_EQ(flights.begin(8, other), Outcome::mine);
    waiter.join();
    stuck_at = region->own_process().stuck_at.load();
  }
  EXPECT_EQ(stuck_at, 0U);
}

TEST(SingleFlight, TicketOfAnEndedFlightEndsNoOther) {
  const TestRegion region;
  SingleFlight flights(*region);
  SingleFlight::Ticket left;
  ASSERT_EQ(flights.begin(7, left), Outcome::mine);
  left.hold().end();
  Gate ready;
  Child child = fetching_child(region, 7, ready);
  const std::uint64_t theirs = region->flight_slot(7).word.load();
  left = {};
  EXPECT_EQ(region->flight_slot(7).word.load(), theirs);
}

TEST(SingleFlight, DoesNotWaitIfTheCallerForbidsIt) {
  const TestRegion region;
  SingleFlight flights(*region);
  SingleFlight::Ticket held, ticket;
  ASSERT_EQ(flights.begin(42, held), Outcome::mine);
  EXPECT_EQ(flights.begin(42, ticket, nullptr, /*may_wait=*/false), Outcome::too_long);
  EXPECT_EQ(region->flight_slot(42 % k_flight_slots).waiting.load(), 0U) << "nobody has waited";
  held = {};
  EXPECT_EQ(flights.begin(42, ticket, nullptr, /*may_wait=*/false), Outcome::mine);
}

TEST(SingleFlight, AWaiterTakesOverFromAKilledFetcher) {
  const TestRegion region;
  Gate ready;
  Child child = fetching_child(region, 1234, ready);
  child.kill_without_reaping();
  const SingleFlight::Patience patience{.longest_ns = 600 * k_second};
  const auto [flight, took_ns] = begin_timed(region, 1234, patience);
  EXPECT_NE(flight, Outcome::too_long);
  EXPECT_LT(took_ns, 60 * k_second);
}

TEST(SingleFlight, AStoppedFetcherIsWaitedForOneSecond) {
  static_assert(SingleFlight::Patience().longest_ns == k_second);
  const TestRegion region;
  Gate ready;
  Child child = fetching_child(region, 1234, ready);
  child.stop();
  const auto [flight, took_ns] = begin_timed(region, 1234);
  EXPECT_EQ(flight, Outcome::too_long);
  EXPECT_GE(took_ns, k_second);
  EXPECT_LT(took_ns, 60 * k_second);
}

// The next process gets the dead process's slot, but the dead fetcher must not look alive.
// Otherwise, every open of its file would take a second and cache nothing.
TEST(SingleFlight, FlightOfAKilledFetcherIsFreeThoughItsSlotIsReused) {
  const TestRegion region;
  Gate ready;
  std::uint64_t word = 0;
  {
    Child child = fetching_child(region, 1234, ready);
    word = region->flight_slot(1234 % k_flight_slots).word.load();
  }
  const Child next = tests::attached_child(region.options, [&](const Region& mine) {
    CHILD_CHECK((word & 0xfff) - 1 == mine.own_slot());
    return 0;
  });
  SingleFlight flights(*region);
  SingleFlight::Ticket ticket;
  EXPECT_NE(flights.begin(1234, ticket), Outcome::too_long);
}

TEST(SingleFlight, EndOfOneProcessEndsNoFlightOfAnother) {
  const TestRegion region;
  Gate ready, other_ready;
  const Child living = fetching_child(region, 77, ready);
  Child killed = fetching_child(region, 78, other_ready);
  const std::uint64_t held = region->flight_slot(77).word.load();
  killed.kill();
  region->reap();
  EXPECT_EQ(region->flight_slot(78).word.load(), 0U);
  EXPECT_EQ(region->flight_slot(77).word.load(), held);
}

// Another path holds the first slot when the child checks it, but no longer when this process
// checks it. So the two processes take different slots.
TEST(SingleFlight, KeepsOneOfTwoSimultaneousFlightsAtAnyInstruction) {
  if (tests::k_tsan || tests::k_asan) GTEST_SKIP() << "too slow in single steps";
  constexpr std::uint64_t k_other = 5, k_both = k_other + (std::uint64_t{k_flight_slots} << 16);
  constexpr int k_has_it = 10, k_has_not = 11;
  const TestRegion region;
  SingleFlight flights(*region);
  int childs = 0, ours = 0;
  bool is_over = false;
  for (int steps = 0; !is_over; steps += 3) {
    SingleFlight::Ticket first, ticket;
    ASSERT_EQ(flights.begin(k_other, first), Outcome::mine);
    tests::Tracee child([&] {
      Region* const mine = tests::attach(region.options);
      CHILD_CHECK(mine != nullptr);
      SingleFlight own(*mine);
      SingleFlight::Ticket flight;
      raise(SIGSTOP);
      const bool has_it = own.begin(k_both, flight, nullptr, /*may_wait=*/false) == Outcome::mine;
      raise(SIGSTOP);
      return has_it ? k_has_it : k_has_not;
    });
    ASSERT_TRUE(child.to_stop());
    is_over = child.step_on(steps);
    first = {};
    const bool is_ours =
        flights.begin(k_both, ticket, nullptr, /*may_wait=*/false) == Outcome::mine;
    while (child.to_stop()) {
    }
    ASSERT_TRUE(child.exit_status() == k_has_it || child.exit_status() == k_has_not)
        << child.exit_status();
    const bool is_childs = child.exit_status() == k_has_it;
    ASSERT_FALSE(is_ours && is_childs) << "both, after " << steps << " instructions";
    childs += is_childs ? 1 : 0;
    ours += is_ours ? 1 : 0;
  }
  EXPECT_GT(childs, 0);
  EXPECT_GT(ours, 0);
}

TEST(SingleFlight, ManyWaitersOfAKilledFetcherFetchOnce) {
  const TestRegion region;
  Gate ready, go;
  Child fetcher = fetching_child(region, 77, ready);
  std::vector<Child> waiters;
  for (int c = 0; c < 4; ++c) {
    waiters.emplace_back([&] {
      Region* const mine = tests::attach(region.options);
      CHILD_CHECK(mine != nullptr);
      SingleFlight flights(*mine);
      ready.give();
      SingleFlight::Ticket ticket;
      CHILD_CHECK(flights.begin(77, ticket) != Outcome::too_long);
      // No other process may be between this point and the end of the ticket.
      auto& inside = mine->header().dead;
      CHILD_CHECK(inside.fetch_add(1) == 0);
      inside.fetch_sub(1);
      return 0;
    });
  }
  ASSERT_TRUE(ready.take(4));
  fetcher.kill();
  for (auto& waiter : waiters) EXPECT_EQ(waiter.wait(), 0);
}

}  // namespace
}  // namespace cube::cache
