// Files of a pack on an origin that hangs, fails and counts.
#include <fcntl.h>
#include <unistd.h>

#include <semaphore>

#include "cache/base/clock.h"
#include "cache/pack/pack_mount.h"
#include "prefetch/span_traffic.h"
#include "tests/lagfs/mount.h"
#include "tests/pack/sample_tree.h"
#include "tests/prefetch/test_client.h"

namespace cube::prefetch::testing {
namespace {

constexpr unsigned k_files = 300;

class SlowPacks : public ::testing::Test {
 protected:
  void SetUp() override {
    const int fd = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd < 0) GTEST_SKIP() << "/dev/fuse: " << strerror(errno);
    close(fd);
    for (unsigned i = 0; i < k_files; ++i) tree.write(name(i), content(i));
    tree.pack = mount.source("set.cube");
    ASSERT_EQ(tree.make(), "");
    mount.start(lagfs::testing::fast({"--direct"}));
    std::string why;
    auto pack = cache::PackMount::open({.prefix = "/packed", .file = mount.at("set.cube")}, why);
    ASSERT_NE(pack, nullptr) << why;
    packs.add(std::move(pack));
  }
  void TearDown() override {
    if (mount.is_mounted()) say("clear");
    engine.reset();
  }
  void start(unsigned depth) {
    std::string why;
    engine = make(Kind::threads, client, {.depth = depth, .packed = {&packs, 1 << 20}}, why);
    ASSERT_NE(engine, nullptr) << why;
    // The index comes to memory here, and not while operations are counted or held.
    submit(0, k_files);
    engine->drain();
    orders.clear();
    warmed = client.ended_so_far();
  }
  static std::string name(unsigned i) { return "f" + std::to_string(1000 + i); }
  static std::string content(unsigned i) { return tests::content_of(2000, i); }
  void submit(unsigned from, unsigned to) {
    for (unsigned i = from; i < to; ++i) engine->submit(*orders.emplace_back(std::make_unique<Order>("/packed/" + name(i))));
  }
  void expect_whole(unsigned i) const {
    EXPECT_EQ(orders[i]->result.ending, Ending::whole) << i;
    EXPECT_TRUE(orders[i]->content() == content(i)) << i;
  }
  void say(const std::string& line) {
    const int fd = ::open(mount.at(".lagfs/script").c_str(), O_WRONLY | O_CLOEXEC);
    EXPECT_EQ(write(fd, line.data(), line.size()), static_cast<ssize_t>(line.size()));
    close(fd);
  }
  void wait_until_held() { EXPECT_NE(lagfs::testing::read_file(mount.at(".lagfs/held")), "0\n"); }

  tests::SampleTree tree;
  lagfs::testing::Mount mount;
  cache::PackMounts packs;
  std::vector<std::unique_ptr<Order>> orders;
  Client client;
  unsigned warmed = 0;
  std::unique_ptr<IoEngine> engine;
};

// The first is held alone, so that the others are there when it comes back.
TEST_F(SlowPacks, TheOriginSeesAReadForManyFiles) {
  start(1);
  mount.reset();
  say("hold read 1");
  submit(0, 1);
  wait_until_held();
  submit(1, k_files);
  say("go");
  engine->drain();
  for (unsigned i = 0; i < k_files; ++i) expect_whole(i);
  unsigned told = 0;
  for (const auto& one : orders) told += one->result.reads;
  EXPECT_EQ(told, 1 + (k_files - 2) / PackedSpan::k_most_files + 1);
  EXPECT_EQ(mount.counters().at("read"), told);
}

TEST_F(SlowPacks, AReadThatFailsIsTriedForEachOfThem) {
  start(1);
  say("hold read 1");
  submit(0, 1);
  wait_until_held();
  submit(1, 40);
  say("fail read EIO 1 2");
  say("go");
  engine->drain();
  unsigned failed = 0;
  for (unsigned i = 0; i < 40; ++i) {
    EXPECT_EQ(orders[i]->times_ended, 1);
    if (orders[i]->result.ending == Ending::failed) {
      EXPECT_EQ(orders[i]->result.error, EIO);
      ++failed;
    } else {
      expect_whole(i);
    }
  }
  EXPECT_EQ(failed, 1U) << "one error for the span, and one for a file";
}

TEST_F(SlowPacks, ASpanThatHangsIsAbandonedWithoutRoom) {
  start(1);
  say("hold read 1");
  submit(0, 1);
  wait_until_held();
  submit(1, 100);
  say("hold read 1");
  say("go");
  client.wait_for(warmed + 1);
  wait_until_held();
  const std::uint64_t began = base::monotonic_ns();
  const unsigned abandoned = engine->stop(50);
  EXPECT_LT(base::monotonic_ns() - began, 5'000'000'000U);  // a hang would be for ever
  EXPECT_EQ(abandoned, PackedSpan::k_most_files);
  for (unsigned i = 0; i < 100; ++i) {
    EXPECT_EQ(orders[i]->times_ended, 1);
    EXPECT_FALSE(orders[i]->result.room_is_lost);
    EXPECT_EQ(orders[i]->asked, i == 0 ? 1 : 0);
  }
  // The thread comes back now, and must be silent, though paths and orders are gone.
  orders.clear();
  say("go");
  EXPECT_EQ(tests::bytes_of(mount.at("set.cube")).size(), tests::bytes_of(tree.pack).size());
}

// As many as an origin in order is left to; what is of another origin must not wait for them for ever.
TEST_F(SlowPacks, SpansThatHangDoNotHoldUpOthers) {
  start(64);
  say("hold read 1 " + std::to_string(SpanTraffic::k_spans + 1));
  submit(0, 200);
  wait_until_held();
  Order other(tree.dir.write("outside", "x"));
  std::binary_semaphore has_ended{0};
  client.when_ended = [&](Order& one) {
    if (&one == &other) has_ended.release();
  };
  engine->submit(other);
  has_ended.acquire();  // the test's time limit is the only one
  EXPECT_EQ(other.result.ending, Ending::whole);
  say("clear");
  engine->drain();
  for (unsigned i = 0; i < 200; ++i) expect_whole(i);
}

}  // namespace
}  // namespace cube::prefetch::testing
