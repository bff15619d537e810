// Threads fetch several files of a pack with one request. The result of each file is the same as if
// it were fetched alone.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/base/clock.h"
#include "cache/origin/origins.h"
#include "tests/bench/lagfs/mount.h"
#include "tests/pack/sample_tree.h"
#include "tests/prefetch/test_client.h"

namespace cube::prefetch::testing {
namespace {

struct EngineTogether : ::testing::Test {
  void SetUp() override {
    const int fd = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd < 0) GTEST_SKIP() << "/dev/fuse: " << strerror(errno);
    close(fd);
    for (int i = 0; i < k_files; ++i) tree.write(name(i), tests::content_of(1000 + 700 * i, i));
    ASSERT_EQ(tree.make(), "");
    lagfs::testing::write_file(mount.source("set.cube"), tests::bytes_of(tree.pack));
    mount.start(lagfs::testing::fast({"--direct"}));
    std::vector<std::string> errors;
    origins =
        cache::Origins::open({{.prefix = tree.root, .file = mount.at("set.cube")}}, {}, errors);
    ASSERT_TRUE(errors.empty()) << errors.front();
    std::string why;
    engine = make(Kind::threads, client,
                  {.depth = 1, .origins = origins.get(), .max_file = 1 << 20}, why);
    ASSERT_NE(engine, nullptr) << why;
  }
  void TearDown() override {
    if (mount.is_mounted()) say("clear");
    engine.reset();
  }
  static std::string name(int i) { return "d/f" + std::to_string(10 + i); }
  void say(const std::string& line) {
    const int fd = ::open(mount.at(".lagfs/script").c_str(), O_WRONLY | O_CLOEXEC);
    EXPECT_EQ(write(fd, line.data(), line.size()), static_cast<ssize_t>(line.size()));
    close(fd);
  }
  // Returns one fetch of all files.
  Fetch& chain() {
    Order* before = nullptr;
    Order* first = nullptr;
    for (int i = 0; i < k_files; ++i) {
      Order& one = *orders.emplace_back(std::make_unique<Order>(tree.root + "/" + name(i)));
      one.place = origins->of(one.text).place_of(one.text);
      if (before == nullptr)
        first = &one;
      else
        before->beside = &one;
      before = &one;
    }
    first->together = first->place;
    first->together.bytes = before->place.end() - first->place.begin;
    return *first;
  }
  // The engine's thread reads the pack once more before its first fetch.
  void run_in() {
    engine->submit(chain());
    engine->drain();
    orders.clear();
  }
  unsigned reads() const {
    unsigned n = 0;
    for (const auto& one : orders) n += one->result.reads;
    return n;
  }
  void expect_whole(int but = -1) {
    for (int i = 0; i < k_files; ++i) {
      const Order& one = *orders[i];
      EXPECT_EQ(one.times_ended, 1) << i;
      if (i == but) continue;
      EXPECT_EQ(one.result.ending, Ending::whole) << i;
      EXPECT_TRUE(one.guard_is_whole) << i;
      EXPECT_EQ(one.content(), tree.files[name(i)]) << i;
      EXPECT_TRUE(one.result.data_hash) << i;
    }
  }

  static constexpr int k_files = 30;
  tests::SampleTree tree;
  lagfs::testing::Mount mount;
  std::unique_ptr<cache::Origins> origins;
  std::vector<std::unique_ptr<Order>> orders;
  Client client;
  std::unique_ptr<IoEngine> engine;
};

TEST_F(EngineTogether, SingleRequestFetchesAllOfThem) {
  engine->submit(chain());
  engine->drain();
  expect_whole();
  EXPECT_EQ(reads(), 1U);
}

TEST_F(EngineTogether, RecordThatIsNotAtItsPlaceIsFetchedAlone) {
  Fetch& first = chain();
  orders[7]->place = orders[8]->place;
  engine->submit(first);
  engine->drain();
  expect_whole();
  EXPECT_GT(reads(), 1U);
}

TEST_F(EngineTogether, UnreadableSpanLosesNoFile) {
  Fetch& first = chain();
  first.together.begin += 1ULL << 40;
  engine->submit(first);
  engine->drain();
  expect_whole();
}

TEST_F(EngineTogether, CancellingWaitingFetchesEndsEachFile) {
  run_in();
  Fetch& first = chain();
  Fetch& second = chain();
  // The thread works on the first request of another fetch.
  say("hold read 1");
  engine->submit(first);
  EXPECT_EQ(lagfs::testing::read_file(mount.at(".lagfs/held")), "1\n");
  engine->submit(second);
  engine->cancel_waiting();
  for (int i = 0; i < k_files; ++i) {
    EXPECT_EQ(orders[i]->times_ended, 0);
    EXPECT_EQ(orders[k_files + i]->times_ended, 1);
    EXPECT_EQ(orders[k_files + i]->result.ending, Ending::cancelled);
  }
  say("go");
  engine->drain();
  expect_whole();
}

TEST_F(EngineTogether, HangingReadIsAbandonedAndNoFileLosesRoom) {
  run_in();
  Fetch& first = chain();
  say("hold read 1");
  engine->submit(first);
  EXPECT_EQ(lagfs::testing::read_file(mount.at(".lagfs/held")), "1\n");
  EXPECT_EQ(engine->stop(0), 1U);
  for (int i = 0; i < k_files; ++i) {
    EXPECT_EQ(orders[i]->times_ended, 1) << i;
    EXPECT_EQ(orders[i]->result.ending, i == 0 ? Ending::abandoned : Ending::cancelled) << i;
    EXPECT_FALSE(orders[i]->result.room_is_lost);
    EXPECT_EQ(orders[i]->asked, 0);
  }
  say("go");
}

}  // namespace
}  // namespace cube::prefetch::testing
