// The thread of a client starts, ends and fails while other threads make requests.
#include <gtest/gtest.h>

#include "tests/cache/cluster/fake_server.h"

namespace cube::cache {
namespace {

TEST(ClusterLife, ThreadThatRunsOutOfMemoryLeavesNothingBehind) {
  FakeServer server([](const std::string&) { return std::string(); });
  Running running({server.name()});
  running.source.hangs = true;
  ASSERT_TRUE(running.has_looked(running.source.looks + 1));
  std::thread asker(
      [&] { EXPECT_EQ(running.get("a"), Outcome::skipped) << "it is not kept waiting"; });
  running.source.throws = true;
  running.source.hangs = false;
  asker.join();
  running.thread.join();
  EXPECT_TRUE(running.source.has_left);
  EXPECT_EQ(running.client->life(), ClusterClient::Life::over);
  EXPECT_EQ(running.get("a"), Outcome::skipped);
}

TEST(ClusterLife, NewThreadStartsAfterOneThatOutlivedItsStop) {
  FakeServer server([](const std::string& line) { return value(line, "x"); });
  Running running({server.name()});
  EXPECT_EQ(running.get("a"), Outcome::hit);
  running.source.hangs = true;
  ASSERT_TRUE(running.has_looked(running.source.looks + 1));
  EXPECT_FALSE(running.client->stop(1 * k_ms));
  running.source.hangs = false;
  running.thread.join();
  running.start();
  EXPECT_EQ(running.get("a"), Outcome::hit);
}

TEST(ClusterLife, RequestDoesNotWaitForAnEndingThread) {
  FakeServer server([](const std::string& line) { return value(line, "x"); });
  Running running({server.name()});
  for (int i = 0; i < 200; ++i) {
    std::thread asker([&] {
      for (int k = 0; k < 50; ++k) {
        const Outcome outcome = running.get("a");
        EXPECT_TRUE(outcome == Outcome::hit || outcome == Outcome::skipped);
      }
    });
    running.stop();
    asker.join();
    running.start();
  }
  EXPECT_EQ(running.get("a"), Outcome::hit);
}

TEST(ClusterLife, LongestTimeDoesNotWrapIntoThePast) {
  FakeServer server([](const std::string& line) { return value(line, "x"); });
  Running running({server.name()});
  EXPECT_EQ(running.get("a", UINT64_MAX), Outcome::hit);
}

// The server does not answer the request for its statistics, but still accepts records.
TEST(ClusterLife, OffersContinueWithoutServerStatistics) {
  std::atomic<bool> has_asked{false}, has_offered{false};
  FakeServer server([&](const std::string& line) {
    if (line == "stats") {
      has_asked = true;
      return std::string();
    }
    has_offered = has_offered || line.starts_with("ms");
    return (line.starts_with("mg") ? "EN" : "HD O" + token_of(line)) + "\r\n";
  });
  Running running({server.name()});
  running.stop();
  OneOffer source;
  source.is_wanted = false;
  running.start(&source);
  const auto comes = [](const std::atomic<bool>& what) {
    const std::uint64_t until = base::monotonic_ns() + k_patience;
    while (!what && base::monotonic_ns() < until) std::this_thread::yield();
    return what.load();
  };
  ASSERT_TRUE(comes(has_asked));
  source.is_wanted = true;
  EXPECT_TRUE(comes(has_offered));
  running.stop();
}

}  // namespace
}  // namespace cube::cache
