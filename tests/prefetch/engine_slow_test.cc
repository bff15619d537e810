// Engines on an origin that hangs. They stop quickly, make no callbacks afterwards, and report
// which orders are lost.
#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "cache/base/clock.h"
#include "tests/bench/lagfs/mount.h"
#include "tests/prefetch/test_client.h"
#include "tests/support/child.h"

namespace cube::prefetch::testing {
namespace {

class SlowEngines : public BothEngines {
 protected:
  void SetUp() override {
    const int fd = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd < 0) GTEST_SKIP() << "/dev/fuse: " << strerror(errno);
    close(fd);
    for (int i = 0; i < 40; ++i) lagfs::testing::write_file(mount.source(name(i)), content);
    auto arguments = lagfs::testing::fast({"--direct"});
    arguments.insert(arguments.end(), {"--attr-timeout=0", std::string("--entry-timeout=") +
                                                               (keeps_names() ? "1000" : "0")});
    mount.start(arguments);
  }
  virtual bool keeps_names() const { return false; }
  void TearDown() override {
    // A failed test may have left held operations.
    if (mount.is_mounted()) say("clear");
    engine.reset();
  }
  static std::string name(int i) { return "f" + std::to_string(i); }
  void say(const std::string& line) {
    const int fd = ::open(mount.at(".lagfs/script").c_str(), O_WRONLY | O_CLOEXEC);
    EXPECT_EQ(write(fd, line.data(), line.size()), static_cast<ssize_t>(line.size()));
    close(fd);
  }
  void wait_until_held() { EXPECT_NE(lagfs::testing::read_file(mount.at(".lagfs/held")), "0\n"); }

  const std::string content = lagfs::testing::random_bytes(30'000, 3);
  lagfs::testing::Mount mount;
};

TEST_P(SlowEngines, HangingReadIsAbandonedAndItsRoomReportedLost) {
  START_ENGINE({.depth = 4});
  say("hold read 1");
  for (int i = 0; i < 8; ++i) engine->submit(order(mount.at(name(i))));
  wait_until_held();
  client.wait_for(7);
  const std::uint64_t began = base::monotonic_ns();
  const unsigned abandoned = engine->stop(50);
  const std::uint64_t took = base::monotonic_ns() - began;
  EXPECT_LT(took, 60'000'000'000U);  // a hang would last forever
  unsigned lost = 0, cancelled = 0;
  for (const auto& one : orders) {
    EXPECT_EQ(one->times_ended, 1);
    lost += one->result.ending == Ending::abandoned;
    cancelled += one->result.ending == Ending::cancelled;
    EXPECT_EQ(one->result.room_is_lost, one->result.ending == Ending::abandoned);
    EXPECT_TRUE(one->result.ending != Ending::whole || one->content() == content);
  }
  EXPECT_EQ(lost, abandoned);
  // io_uring can cancel a read if the file system lets it be interrupted, as this one does.
  EXPECT_EQ(lost + cancelled, 1U);
  EXPECT_TRUE(lost == 1 || GetParam() == Kind::uring);
  say("go");
  // Now the thread returns from the kernel, and must make no callbacks. The success of the next
  // operations on the mount shows that the daemon has finished the thread's request.
  EXPECT_TRUE(lagfs::testing::read_file(mount.at(name(9))) == content);
  for (const auto& one : orders) EXPECT_EQ(one->times_ended, 1);
}

TEST_P(SlowEngines, AnOpenThatHangsIsAbandonedWithoutRoom) {
  START_ENGINE({.depth = 2});
  say("hold open 1");
  {
    // The path is destroyed together with the order, like the path of an abandoned client.
    auto one = std::make_unique<Order>(mount.at(name(0)));
    engine->submit(*one);
    wait_until_held();
    engine->stop(50);
    EXPECT_EQ(one->times_ended, 1);
    EXPECT_TRUE(one->result.ending == Ending::abandoned || one->result.ending == Ending::cancelled);
    EXPECT_FALSE(one->result.room_is_lost);
    EXPECT_EQ(one->asked, 0);
  }
  engine.reset();
  say("go");
  EXPECT_TRUE(lagfs::testing::read_file(mount.at(name(9))) == content);
}

TEST_P(SlowEngines, FilesAreClosedWhenTheProcessHasEnded) {
  constexpr int k_no_engine = 77;
  say("hold read 1");
  const int ended = tests::run_in_child([&] {
    std::string why;
    engine = make(GetParam(), client, {.depth = 1, .give_back_ms = 60'000}, why);
    if (engine == nullptr) return k_no_engine;
    Order& one = order(mount.at(name(0)));
    engine->submit(one);
    wait_until_held();
    // The origin answers only after the fetch has been abandoned.
    std::atomic<bool> has_answered{false};
    std::thread origin([&] {
      client.wait_for(1);
      has_answered = true;
      say("go");
    });
    engine->stop(0);
    // A hanging thread ends with the process, but a hanging request of a ring would not.
    CHILD_CHECK(GetParam() == Kind::threads || has_answered ||
                one.result.ending == Ending::cancelled);
    origin.join();
    CHILD_CHECK(one.times_ended == 1);
    return 0;
  });
  if (ended == k_no_engine) GTEST_SKIP();
  EXPECT_EQ(ended, 0);
  EXPECT_EQ(umount2(mount.target().c_str(), 0), 0) << strerror(errno);
}

TEST_P(SlowEngines, HangingRequestDoesNotDelayOthers) {
  START_ENGINE({.depth = 2});
  say("hold open 1");
  for (int i = 0; i < 40; ++i) engine->submit(order(mount.at(name(i))));
  client.wait_for(39);
  say("go");
  engine->drain();
  for (const auto& one : orders) {
    EXPECT_EQ(one->result.ending, Ending::whole);
    EXPECT_TRUE(one->content() == content);
  }
}

class SlowEnginesKnownNames : public SlowEngines {
  bool keeps_names() const override { return true; }
};

// The kernel finds a known name without asking the origin, and may then wait at an unexpected step.
TEST_P(SlowEnginesKnownNames, HangingOpenDoesNotDelayOthers) {
  START_ENGINE({.depth = 2});
  for (int i = 0; i < 40; ++i) EXPECT_EQ(fetch(mount.at(name(i))).result.ending, Ending::whole);
  for (const char* operation : {"open", "getattr", "read"}) {
    say(std::string("hold ") + operation + " 1");
    for (int i = 0; i < 40; ++i) engine->submit(order(mount.at(name(i))));
    client.wait_for(static_cast<unsigned>(orders.size()) - 1);
    say("go");
    engine->drain();
  }
  for (const auto& one : orders)
    EXPECT_TRUE(one->result.ending == Ending::whole && one->content() == content);
}

// There are more fetches than a ring has workers by default. The test runs with newly started
// threads and with idle threads.
TEST_P(SlowEngines, ExactlyDepthRequestsWaitForTheOrigin) {
  constexpr unsigned k_depth = 30;
  START_ENGINE({.depth = k_depth, .idle_ms = 3'600'000});
  const auto opens = [&] {
    const auto counters = mount.counters();
    return counters.contains("open") ? counters.at("open") : 0;
  };
  for (int round = 0; round < 2; ++round) {
    say("hold open 1 1000");
    mount.reset();
    for (int i = 0; i < 100; ++i) engine->submit(order(mount.at(name(i % 40))));
    const std::uint64_t until = base::monotonic_ns() + 60'000'000'000U;
    while (opens() < k_depth) ASSERT_LT(base::monotonic_ns(), until) << opens() << " at a time";
    for (int i = 0; i < 50; ++i) ASSERT_EQ(opens(), k_depth);
    say("clear");
    engine->drain();
  }
  for (const auto& one : orders) EXPECT_EQ(one->result.ending, Ending::whole);
}

TEST_P(SlowEngines, ReportErrorsOfReadsAndOpens) {
  START_ENGINE({.depth = 1});
  say("fail read EIO 1");
  Order& read = fetch(mount.at(name(0)));
  EXPECT_EQ(read.result.ending, Ending::failed);
  EXPECT_EQ(read.result.error, EIO);
  EXPECT_TRUE(read.result.has_room);
  say("fail open EACCES 1");
  EXPECT_EQ(fetch(mount.at(name(1))).result.error, EACCES);
  EXPECT_EQ(fetch(mount.at(name(0))).result.ending, Ending::whole);
}

TEST_P(SlowEngines, ProcessEndsThoughAFetchHangs) {
  for (const bool killed : {true, false}) {
    say("hold read 1");
    tests::Gate ready;
    tests::Child child([&] {
      start({.depth = 2});
      if (engine == nullptr) return 77;
      engine->submit(order(mount.at(name(0))));
      ready.take();
      if (killed) tests::wait_for_death();
      return 0;  // _exit while the engine works
    });
    wait_until_held();
    if (killed) {
      child.send(SIGKILL);
    } else {
      ready.give();
    }
    EXPECT_EQ(child.wait(), killed ? -SIGKILL : 0);
    say("clear");
  }
}

TEST_P(SlowEngines, AskTheOriginForNoMoreThanNeeded) {
  START_ENGINE({.depth = 1});
  mount.reset();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(fetch(mount.at(name(i))).result.ending, Ending::whole);
  const auto counters = mount.counters();
  const auto count = [&](const char* operation) {
    return counters.contains(operation) ? counters.at(operation) : 0;
  };
  EXPECT_EQ(count("open"), 10U);
  // With --direct each read makes two requests: one for the file, and one for the byte beyond it.
  EXPECT_LE(count("read"), 20U);
  EXPECT_EQ(count("release"), 10U);
}

INSTANTIATE_TEST_SUITE_P(, SlowEngines, ::testing::Values(Kind::threads, Kind::uring), name_of);
INSTANTIATE_TEST_SUITE_P(, SlowEnginesKnownNames, ::testing::Values(Kind::threads, Kind::uring),
                         name_of);

}  // namespace
}  // namespace cube::prefetch::testing
