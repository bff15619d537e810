// Requests to the gateway. Each asking process gets the answer to its own request, even if other
// processes die meanwhile.
#include "cache/region/mailbox/mailbox.h"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cache/base/clock.h"
#include "cache/region/mailbox/mail_row.h"
#include "tests/support/attached_child.h"

namespace cube::cache {
namespace {

using tests::Child;
using tests::Gate;
using tests::TestRegion;

constexpr MailQuery k_query{.kind = MailKind::object,
                            .is_prefetch = false,
                            .prefix = "/data/train",
                            .url = "s3://bucket/train",
                            .below = "a/b 1+%.jpg"};
constexpr Mailbox::Patience k_patient{};
constexpr std::uint64_t k_ms = 1'000'000;

int never_start() { return ENOEXEC; }
int start_nothing() { return 0; }

int ask(Region& region, const MailQuery& query, Mailbox::Start start = never_start,
        const Mailbox::Patience& patience = k_patient) {
  Mailbox mailbox(region);
  Mailbox::Post post;
  return mailbox.ask(query, start, patience, post);
}

// Waits for the next request.
Mailbox::Request take_one(Mailbox& mailbox) {
  while (true) {
    const std::uint32_t seen = mailbox.news();
    if (auto request = mailbox.take(); request) return std::move(*request);
    mailbox.wait_for_news(seen, 30'000 * k_ms);
  }
}

std::uint32_t rows_in_use(const Region& region) {
  std::uint32_t used = 0;
  for (std::uint32_t i = 0; i < region.layout().mail_rows(); ++i)
    used += region.mail_row(i).word.load() >> 60 != 0 ? 1 : 0;
  return used;
}

// A process that has sent a request and waits for the answer.
Child asking_child(const TestRegion& region, const MailQuery& query = k_query) {
  return Child([&] {
    Region* const mine = tests::attach(region.options);
    CHILD_CHECK(mine != nullptr);
    return ask(*mine, query);
  });
}

// A gateway that has taken one request and waits to be killed.
Child gateway_with_a_request(const TestRegion& region, Gate& has_taken) {
  return Child([&] {
    Region* const mine = tests::attach(region.options);
    CHILD_CHECK(mine != nullptr);
    static Mailbox mailbox(*mine);
    CHILD_CHECK(mailbox.become_gateway() == 0);
    has_taken.give();
    take_one(mailbox);
    has_taken.give();
    return tests::wait_for_death();
  });
}

TEST(Mailbox, DeliversTheQueryAndReturnsTheError) {
  const TestRegion region;
  Mailbox gateway(*region);
  ASSERT_EQ(gateway.become_gateway(), 0);
  Child asker = asking_child(region);
  const Mailbox::Request request = take_one(gateway);
  EXPECT_EQ(request.kind, MailKind::object);
  EXPECT_FALSE(request.is_prefetch);
  EXPECT_EQ(request.prefix, k_query.prefix);
  EXPECT_EQ(request.url, k_query.url);
  EXPECT_EQ(request.below, k_query.below);
  EXPECT_TRUE(gateway.is_wanted(request.ticket));
  EXPECT_FALSE(gateway.take()) << "a request is taken once";
  EXPECT_EQ(request.since_ns, k_query.since_ns);
  EXPECT_TRUE(gateway.finish(request.ticket, ENOENT));
  EXPECT_EQ(asker.wait(), ENOENT);
  EXPECT_FALSE(gateway.is_wanted(request.ticket));
  EXPECT_EQ(rows_in_use(*region), 0U);
}

TEST(Mailbox, DeliversTextsUpToItsLimitAndRefusesLongerOnes) {
  const TestRegion region;
  Mailbox gateway(*region);
  ASSERT_EQ(gateway.become_gateway(), 0);
  constexpr std::size_t k_most = MailRow::k_words * 8;
  const std::string prefix(500, 'p'), url(491, 'u'), below(k_most - 991, 'b');
  Child asker = asking_child(region, {MailKind::listing, /*is_prefetch=*/true, prefix, url, below});
  const Mailbox::Request request = take_one(gateway);
  EXPECT_EQ(request.kind, MailKind::listing);
  EXPECT_TRUE(request.is_prefetch);
  EXPECT_EQ(request.prefix, prefix);
  EXPECT_EQ(request.url, url);
  EXPECT_EQ(request.below, below);
  gateway.finish(request.ticket, 0);
  EXPECT_EQ(asker.wait(), 0);
  EXPECT_EQ(ask(*region, {MailKind::object, false, prefix, url, below + "b"}), ENAMETOOLONG);
  EXPECT_EQ(rows_in_use(*region), 0U);
}

TEST(Mailbox, DeliversTheGatewaysErrorTextOnce) {
  const TestRegion region;
  Mailbox gateway(*region), mailbox(*region);
  ASSERT_EQ(gateway.become_gateway(), 0);
  const std::string why = "s3://bucket: access denied";
  std::thread asker([&] {
    for (const bool is_long : {false, true}) {
      Mailbox::Post post;
      char room[Mailbox::k_why];
      EXPECT_EQ(mailbox.ask(k_query, never_start, k_patient, post), EACCES);
      EXPECT_EQ(mailbox.why(post, room), is_long ? std::string(Mailbox::k_why, 'x') : why);
      EXPECT_EQ(mailbox.is_to_be_told(EACCES), !is_long);
    }
  });
  EXPECT_TRUE(gateway.finish(take_one(gateway).ticket, EACCES, why));
  EXPECT_TRUE(gateway.finish(take_one(gateway).ticket, EACCES, std::string(300, 'x')));
  asker.join();
}

// Two stores use the same row, one after the other.
TEST(Mailbox, RowKeepsNothingOfItsPreviousRequest) {
  const TestRegion region;
  Mailbox first(*region), second(*region, /*store=*/7);
  ASSERT_EQ(first.become_gateway(), 0);
  ASSERT_EQ(second.become_gateway(), 0);
  const auto ask_both = [&] {
    MailQuery query = k_query;
    {
      Mailbox::Post post;
      query.since_ns = 5;
      EXPECT_EQ(first.ask(query, never_start, k_patient, post), EIO);
    }
    Mailbox::Post post;
    query.since_ns = 9;
    EXPECT_EQ(second.ask(query, never_start, k_patient, post), ENOENT);
    char room[Mailbox::k_why];
    EXPECT_EQ(second.why(post, room), "short");
  };
  const auto take_from_both = [&] {
    while (true) {
      const std::uint32_t seen = first.news();
      for (Mailbox* const mailbox : {&first, &second}) {
        if (auto request = mailbox->take(); request) return std::pair(mailbox, *request);
      }
      first.wait_for_news(seen, 30'000 * k_ms);
    }
  };
  std::thread asker(ask_both);
  const auto [mailbox, old] = take_from_both();
  EXPECT_EQ(mailbox, &first);
  EXPECT_EQ(old.since_ns, 5U);
  EXPECT_TRUE(first.finish(old.ticket, EIO, "a line that is longer"));
  const auto [next_mailbox, request] = take_from_both();
  EXPECT_EQ(next_mailbox, &second);
  EXPECT_EQ(request.ticket.row, old.ticket.row);
  EXPECT_EQ(request.since_ns, 9U);
  EXPECT_FALSE(first.finish(old.ticket, EPERM)) << "an answer that comes too late";
  EXPECT_TRUE(second.finish(request.ticket, ENOENT, "short"));
  asker.join();
}

TEST(Mailbox, HasOneGatewayAtATime) {
  const TestRegion region;
  Mailbox first(*region);
  EXPECT_FALSE(first.has_gateway());
  ASSERT_EQ(first.become_gateway(), 0);
  EXPECT_TRUE(first.has_gateway());
  EXPECT_EQ(tests::run_in_child([&] {
              Region* const mine = tests::attach(region.options);
              CHILD_CHECK(mine != nullptr);
              Mailbox second(*mine);
              return second.become_gateway();
            }),
            EEXIST);
  first.resign();
  EXPECT_FALSE(first.has_gateway());
  Mailbox next(*region);
  EXPECT_EQ(next.become_gateway(), 0);
}

TEST(Mailbox, RequestOfADeadAskerIsDroppedAndItsRowFreed) {
  const TestRegion region;
  Mailbox gateway(*region);
  ASSERT_EQ(gateway.become_gateway(), 0);
  Child asker = asking_child(region);
  const Mailbox::Request request = take_one(gateway);
  asker.kill();
  region->reap();
  EXPECT_FALSE(gateway.is_wanted(request.ticket));
  EXPECT_EQ(rows_in_use(*region), 0U);
  EXPECT_FALSE(gateway.finish(request.ticket, 0));
  EXPECT_EQ(rows_in_use(*region), 0U) << "the late answer changed nothing";
}

TEST(Mailbox, LateAnswerDoesNotReachTheNextRequestOfTheRow) {
  const TestRegion region;
  Mailbox gateway(*region);
  ASSERT_EQ(gateway.become_gateway(), 0);
  Child first = asking_child(region);
  const Mailbox::Request old = take_one(gateway);
  first.kill();
  region->reap();
  Child second = asking_child(region);
  const Mailbox::Request request = take_one(gateway);
  ASSERT_EQ(request.ticket.row, old.ticket.row);
  EXPECT_FALSE(gateway.is_wanted(old.ticket));
  EXPECT_FALSE(gateway.finish(old.ticket, EIO));
  EXPECT_TRUE(gateway.finish(request.ticket, 0));
  EXPECT_EQ(second.wait(), 0);
}

TEST(Mailbox, NewGatewayTakesNoRequestsOfAnotherStore) {
  const TestRegion region;
  Mailbox gateway(*region), other(*region, /*store=*/7);
  ASSERT_EQ(gateway.become_gateway(), 0);
  std::thread asker([&] { EXPECT_EQ(ask(*region, k_query), 0); });
  const Mailbox::Request request = take_one(gateway);
  ASSERT_EQ(other.become_gateway(), 0);
  EXPECT_FALSE(gateway.take()) << "it would be fetched twice";
  EXPECT_TRUE(gateway.finish(request.ticket, 0));
  asker.join();
}

TEST(Mailbox, NewGatewayReportsAnErrorAgain) {
  const TestRegion region;
  Mailbox former(*region, /*store=*/1);
  ASSERT_EQ(former.become_gateway(), 0);
  EXPECT_TRUE(former.is_to_be_told(EACCES));
  EXPECT_FALSE(former.is_to_be_told(EACCES));
  former.resign();
  Mailbox next(*region, /*store=*/2);
  ASSERT_EQ(next.become_gateway(), 0);
  EXPECT_TRUE(next.is_to_be_told(EACCES));
}

TEST(Mailbox, NewGatewayHasFetchedNothing) {
  const TestRegion region;
  Mailbox former(*region, /*store=*/1);
  ASSERT_EQ(former.become_gateway(), 0);
  former.publish({.answers = 7, .bytes = 1000});
  former.resign();
  Mailbox next(*region, /*store=*/2);
  ASSERT_EQ(next.become_gateway(), 0);
  std::uint32_t gateways = 0;
  const GatewayFigures figures = figures_of_gateways(*region, gateways);
  EXPECT_EQ(gateways, 1U);
  EXPECT_EQ(figures.answers, 0U);
  EXPECT_EQ(figures.bytes, 0U);
}

// The next gateway is another process of this test, so the asking process's Start does not start
// one.
TEST(Mailbox, NextGatewayAnswersARequestTakenByADeadOne) {
  const TestRegion region;
  Gate has_taken;
  Child dead = gateway_with_a_request(region, has_taken);
  ASSERT_TRUE(has_taken.take());
  Gate starts;
  static Gate* start_gate;
  start_gate = &starts;
  Child asker([&] {
    Region* const mine = tests::attach(region.options);
    CHILD_CHECK(mine != nullptr);
    return ask(*mine, k_query, [] {
      start_gate->give();
      return 0;
    });
  });
  ASSERT_TRUE(has_taken.take());
  dead.kill();
  ASSERT_TRUE(starts.take()) << "the asker notices the death and starts another gateway";
  Mailbox next(*region);
  ASSERT_EQ(next.become_gateway(), 0);
  const Mailbox::Request request = take_one(next);
  EXPECT_EQ(request.below, k_query.below);
  EXPECT_TRUE(next.finish(request.ticket, 0));
  EXPECT_EQ(asker.wait(), 0);
}

TEST(Mailbox, ConcurrentAskersStartOneGateway) {
  const TestRegion region;
  static std::atomic<int> starts{0};
  std::vector<std::thread> askers;
  for (int i = 0; i < 8; ++i)
    askers.emplace_back([&] {
      EXPECT_EQ(ask(*region, k_query,
                    [] {
                      starts.fetch_add(1);
                      return 0;
                    }),
                0);
    });
  Mailbox gateway(*region);
  while (starts.load() == 0) std::this_thread::yield();
  ASSERT_EQ(gateway.become_gateway(), 0);
  for (int i = 0; i < 8; ++i) gateway.finish(take_one(gateway).ticket, 0);
  for (auto& asker : askers) asker.join();
  EXPECT_EQ(starts.load(), 1);
}

TEST(Mailbox, GatewayThatEndsSoonAfterItsStartIsReplacedImmediately) {
  const TestRegion region;
  static std::atomic<bool> has_started{false};
  std::thread asker([&] {
    EXPECT_EQ(ask(*region, k_query,
                  [] {
                    has_started = true;
                    return 0;
                  }),
              0);
  });
  while (!has_started) std::this_thread::yield();
  Mailbox gateway(*region);
  ASSERT_EQ(gateway.become_gateway(), 0);
  gateway.finish(take_one(gateway).ticket, 0);
  asker.join();
  gateway.resign();
  EXPECT_EQ(ask(*region, k_query, never_start, {.longest_ns = k_ms, .look_again_ns = k_ms}),
            ENOEXEC);
}

TEST(Mailbox, AskReturnsTheErrorOfTheStart) {
  const TestRegion region;
  EXPECT_EQ(ask(*region, k_query, never_start), ENOEXEC);
  EXPECT_EQ(rows_in_use(*region), 0U);
  EXPECT_EQ(ask(*region, k_query, never_start, {.longest_ns = k_ms, .look_again_ns = k_ms}),
            ENOEXEC)
      << "and it is tried again at once";
}

TEST(Mailbox, WaitForASilentGatewayIsBounded) {
  const TestRegion region;
  Mailbox gateway(*region);
  ASSERT_EQ(gateway.become_gateway(), 0);
  EXPECT_EQ(ask(*region, k_query, never_start, {.longest_ns = 50 * k_ms, .look_again_ns = k_ms}),
            ETIMEDOUT);
  EXPECT_EQ(rows_in_use(*region), 0U);
  EXPECT_EQ(ask(*region, k_query, start_nothing, {.longest_ns = 50 * k_ms, .look_again_ns = k_ms}),
            ETIMEDOUT);
}

// The gateway reports progress for longer than the asking process would wait without progress.
// Meanwhile, no other process may take the row.
TEST(Mailbox, ProgressKeepsTheAskerWaiting) {
  const TestRegion region;
  Mailbox gateway(*region);
  ASSERT_EQ(gateway.become_gateway(), 0);
  constexpr Mailbox::Patience k_short{.longest_ns = 1000 * k_ms, .look_again_ns = 10 * k_ms};
  std::atomic<int> answer{-1};
  std::thread asker([&] { answer = ask(*region, k_query, never_start, k_short); });
  const Mailbox::Request request = take_one(gateway);
  const auto& overdue_ns = region->mail_row(request.ticket.row).overdue_ns;
  const std::uint64_t first_overdue_ns = overdue_ns.load();
  const std::uint64_t until = base::monotonic_ns() + 3 * k_short.longest_ns / 2;
  while (base::monotonic_ns() < until || overdue_ns.load() <= first_overdue_ns)
    gateway.tell_progress(request.ticket);
  EXPECT_TRUE(gateway.finish(request.ticket, 0)) << "the asker still waits";
  asker.join();
  EXPECT_EQ(answer.load(), 0);
}

TEST(Mailbox, AskerWaitsForARowIfTheTableIsFull) {
  const TestRegion region;
  Mailbox gateway(*region);
  ASSERT_EQ(gateway.become_gateway(), 0);
  const std::uint32_t rows = region->layout().mail_rows();
  std::atomic<std::uint32_t> answered{0};
  std::vector<std::thread> askers;
  for (std::uint32_t i = 0; i < rows + 3; ++i)
    askers.emplace_back([&] {
      if (ask(*region, k_query) == 0) answered.fetch_add(1);
    });
  std::vector<Mailbox::Request> taken;
  while (taken.size() < rows) taken.push_back(take_one(gateway));
  EXPECT_FALSE(gateway.take()) << "the others wait";
  for (const auto& request : taken) EXPECT_TRUE(gateway.finish(request.ticket, 0));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(gateway.finish(take_one(gateway).ticket, 0));
  for (auto& asker : askers) asker.join();
  EXPECT_EQ(answered.load(), rows + 3);
}

// Returns when the process sleeps or has ended.
void wait_until_asleep(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  for (std::string stat;
       stat.find(") S ") == std::string::npos && stat.find(") Z ") == std::string::npos;)
    std::getline(std::ifstream(path), stat);
}

// A process that sends a request and has a handler for SIGUSR1 that interrupts system calls.
Child interrupted_child(const TestRegion& region, bool ends_on_signal) {
  return Child([&] {
    Region* const mine = tests::attach(region.options);
    CHILD_CHECK(mine != nullptr);
    struct ::sigaction action {};
    action.sa_handler = [](int) {};
    CHILD_CHECK(sigaction(SIGUSR1, &action, nullptr) == 0);
    return ask(*mine, k_query, never_start,
               {.look_again_ns = 30'000 * k_ms, .ends_on_signal = ends_on_signal});
  });
}

TEST(Mailbox, SignalHandlerEndsTheWaitIfTheAskerAllowsIt) {
  const TestRegion region;
  Mailbox gateway(*region);
  ASSERT_EQ(gateway.become_gateway(), 0);
  for (const bool ends_on_signal : {true, false}) {
    Child asker = interrupted_child(region, ends_on_signal);
    const Mailbox::Request request = take_one(gateway);
    wait_until_asleep(asker.pid());
    asker.send(SIGUSR1);
    if (ends_on_signal) {
      EXPECT_EQ(asker.wait(), EINTR);
      region->reap();
      continue;
    }
    wait_until_asleep(asker.pid());
    EXPECT_TRUE(gateway.finish(request.ticket, 0));
    EXPECT_EQ(asker.wait(), 0);
  }
}

// A thread that leaves its wait by a jump never frees its row.
TEST(Mailbox, OverdueRowsGoToTheNextAsker) {
  const TestRegion region;
  Mailbox gateway(*region);
  ASSERT_EQ(gateway.become_gateway(), 0);
  const std::uint32_t rows = region->layout().mail_rows();
  constexpr Mailbox::Patience k_short{.longest_ns = k_ms, .look_again_ns = k_ms};
  std::vector<MailTicket> left;
  for (std::uint32_t i = 0; i < rows; ++i) {
    auto* const jumped = new Mailbox::Post;
    tests::never_freed(jumped);
    Mailbox mailbox(*region);
    ASSERT_EQ(mailbox.ask(k_query, never_start, k_short, *jumped), ETIMEDOUT);
    left.push_back(jumped->ticket());
  }
  EXPECT_EQ(rows_in_use(*region), rows);
  std::thread asker([&] { EXPECT_EQ(ask(*region, k_query), 0); });
  std::optional<std::uint32_t> reused;
  while (!reused) {
    const Mailbox::Request request = take_one(gateway);
    if (gateway.finish(request.ticket, 0) && request.ticket.word >> 60 == 3 &&
        (request.ticket.word & 0xffffff) > 1)
      reused = request.ticket.row;
  }
  asker.join();
  EXPECT_FALSE(gateway.is_wanted(left.at(*reused)));
}

// While an asker writes a row, overdue_ns is still that of the row's previous request.
TEST(Mailbox, ARowThatIsBeingWrittenIsNotOverdue) {
  const TestRegion region;
  Mailbox gateway(*region);
  ASSERT_EQ(gateway.become_gateway(), 0);
  constexpr std::uint64_t k_other = 5ULL << mail::k_asker_at;
  constexpr Mailbox::Patience k_short{.longest_ns = k_ms, .look_again_ns = k_ms};
  const std::uint64_t writing = mail::with_state(k_other | 1, mail::MailState::writing);
  for (std::uint32_t i = 0; i < region->layout().mail_rows(); ++i)
    region->mail_row(i).word.store(writing);
  Mailbox::Post post;
  EXPECT_EQ(Mailbox(*region).ask(k_query, never_start, k_short, post), ETIMEDOUT);
  for (std::uint32_t i = 0; i < region->layout().mail_rows(); ++i)
    EXPECT_EQ(region->mail_row(i).word.load(), writing);
}

// A forked child has a copy of its parent's Post, and ends without running its destructor.
TEST(Mailbox, ForkedChildLeavesItsParentsRequestAlone) {
  const TestRegion region;
  Mailbox gateway(*region);
  ASSERT_EQ(gateway.become_gateway(), 0);
  std::thread asker([&] { EXPECT_EQ(ask(*region, k_query), 0); });
  const Mailbox::Request request = take_one(gateway);
  EXPECT_EQ(tests::run_in_child([&] {
              Region* const mine = tests::attach(region.options);
              CHILD_CHECK(mine != nullptr);
              mine->detach();
              return 0;
            }),
            0);
  EXPECT_TRUE(gateway.is_wanted(request.ticket));
  EXPECT_TRUE(gateway.finish(request.ticket, 0));
  asker.join();
}

}  // namespace
}  // namespace cube::cache
