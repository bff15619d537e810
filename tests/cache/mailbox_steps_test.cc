// Requests to the gateway, instruction by instruction. If a process dies between any two
// instructions, no asking process waits forever and no row is lost.
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "cache/base/sanitizers.h"
#include "cache/region/mailbox/mailbox.h"
#include "tests/support/attached_child.h"
#include "tests/support/tracee.h"

namespace cube::cache {
namespace {

using tests::Child;
using tests::TestRegion;
using tests::Tracee;

constexpr std::uint64_t k_longest_ns = 30'000'000'000;
// ThreadSanitizer turns one instruction into about ten.
constexpr long k_instructions = CUBE_TSAN ? 10 : 1;

int ask_gateway(Region& region, const MailQuery& query) {
  Mailbox mailbox(region);
  Mailbox::Post post;
  return mailbox.ask(
      query, [] { return 0; }, {}, post);
}

std::uint32_t mail_rows_in_use(const Region& region) {
  std::uint32_t used = 0;
  for (std::uint32_t i = 0; i < region.layout().mail_rows(); ++i)
    used += region.mail_row(i).word.load() >> 60 != 0 ? 1 : 0;
  return used;
}

// Kills the asking process after each instruction of the post. The mailbox still works, and no row
// is lost.
TEST(MailboxSteps, DeathOfAnAskerAtAnyInstructionLosesNoRow) {
  const TestRegion region;
  Mailbox gateway(*region);
  ASSERT_EQ(gateway.become_gateway(), 0);
  constexpr MailQuery k_short_query{MailKind::object, false, "/p", "s3://b", "k"};
  constexpr long k_stride = 7 * k_instructions;
  bool has_posted = false;
  for (long steps = 1; !has_posted && steps < 20'000 * k_instructions; steps += k_stride) {
    Tracee asker([&] {
      Region* const mine = tests::attach(region.options);
      CHILD_CHECK(mine != nullptr);
      raise(SIGSTOP);
      return ask_gateway(*mine, k_short_query);
    });
    ASSERT_TRUE(asker.to_stop());
    asker.step_on(steps);
    if (const auto request = gateway.take(); request) {
      has_posted = true;
      EXPECT_EQ(request->below, k_short_query.below);
    }
    asker.kill();
    region->reap();
    ASSERT_EQ(mail_rows_in_use(*region), 0U) << "after " << steps << " instructions";
  }
  EXPECT_TRUE(has_posted);
}

// Kills a gateway after each instruction of its work on one request. Then either the next gateway
// finds the request, or the asking process has its answer.
TEST(MailboxSteps, DeathOfAGatewayAtAnyInstructionLosesNoRequest) {
  const TestRegion region;
  constexpr MailQuery k_short_query{MailKind::object, false, "/p", "s3://b", "k"};
  constexpr long k_stride = 11 * k_instructions;
  bool has_finished = false;
  for (long steps = 1; !has_finished && steps < 40'000 * k_instructions; steps += k_stride) {
    Child asker([&] {
      Region* const mine = tests::attach(region.options);
      CHILD_CHECK(mine != nullptr);
      return ask_gateway(*mine, k_short_query);
    });
    Tracee gateway([&] {
      Region* const mine = tests::attach(region.options);
      CHILD_CHECK(mine != nullptr);
      Mailbox mailbox(*mine);
      CHILD_CHECK(mailbox.become_gateway() == 0);
      const std::uint32_t none = 0;
      if (mailbox.news() == none) mailbox.wait_for_news(none, k_longest_ns);
      raise(SIGSTOP);
      const auto request = mailbox.take();
      if (request) mailbox.finish(request->ticket, 0);
      return tests::wait_for_death();
    });
    ASSERT_TRUE(gateway.to_stop());
    // Waits for the asker's request of this round, which the gateway may have counted before.
    while (mail_rows_in_use(*region) == 0) std::this_thread::yield();
    gateway.step_on(steps);
    gateway.kill();
    region->reap();
    Mailbox next(*region);
    ASSERT_EQ(next.become_gateway(), 0);
    if (const auto request = next.take(); request) {
      EXPECT_EQ(request->below, k_short_query.below);
      EXPECT_TRUE(next.finish(request->ticket, 0));
    } else {
      has_finished = true;
    }
    next.resign();
    ASSERT_EQ(asker.wait(), 0) << "after " << steps << " instructions";
    region->reap();
    ASSERT_EQ(mail_rows_in_use(*region), 0U);
  }
  EXPECT_TRUE(has_finished);
}

}  // namespace
}  // namespace cube::cache
