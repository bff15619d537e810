// Files of a pack: those that lie beside each other come with one read, and each ends as it would by itself.
#include <fcntl.h>

#include <cerrno>
#include <filesystem>
#include <semaphore>
#include <thread>

#include "cache/pack/pack_mount.h"
#include "prefetch/packed_span.h"
#include "tests/pack/sample_tree.h"
#include "tests/prefetch/test_client.h"

namespace cube::prefetch::testing {
namespace {

constexpr unsigned k_files = 200;

class PackedFetches : public ::testing::Test {
 protected:
  static std::string name(unsigned i) { return "a/f" + std::to_string(1000 + i); }
  static std::string content(unsigned i) { return tests::content_of(3000 + i * 17 % 5000, i); }
  void SetUp() override {
    for (unsigned i = 0; i < k_files; ++i) tree.write(name(i), content(i));
    std::filesystem::create_symlink("f1050", tree.root + "/a/f1050x");
  }
  // One worker, so that what it reads does not depend on who is quicker. It is held until all is submitted.
  void start(unsigned depth = 1) {
    ASSERT_EQ(tree.make(), "");
    std::string why;
    auto mount = cache::PackMount::open({.prefix = "/packed", .file = tree.pack}, why);
    ASSERT_NE(mount, nullptr) << why;
    packs.add(std::move(mount));
    engine = make(Kind::threads, client, {.depth = depth, .packed = {&packs, 1 << 20}}, why);
    ASSERT_NE(engine, nullptr) << why;
    client.when_asked = [this](Order& one) {
      if (&one != &first) return;
      is_held.release();
      go_on.acquire();
    };
    engine->submit(first);
    is_held.acquire();
  }
  Order& add(const std::string& path) { return *orders.emplace_back(std::make_unique<Order>("/packed/" + path)); }
  void run() {
    for (const auto& one : orders) engine->submit(*one);
    go_on.release();
    engine->drain();
    for (const auto& one : orders) {
      EXPECT_EQ(one->times_ended, 1);
      EXPECT_TRUE(one->guard_is_whole);
    }
  }
  unsigned reads() const {
    unsigned sum = 0;
    for (const auto& one : orders) sum += one->result.reads;
    return sum;
  }
  static void expect_whole(const Order& one, const std::string& bytes) {
    EXPECT_EQ(one.result.ending, Ending::whole) << one.text;
    EXPECT_TRUE(one.content() == bytes) << one.text;
    EXPECT_EQ(one.result.bytes, bytes.size());
    EXPECT_EQ(one.result.opens + one.result.stats, 0);
    EXPECT_TRUE(cache::is_packed(one.file.stat));
  }

  tests::SampleTree tree;
  cache::PackMounts packs;
  Order first{tree.dir.write("outside", "x")};
  std::vector<std::unique_ptr<Order>> orders;
  std::binary_semaphore is_held{0}, go_on{0};
  Client client;
  std::unique_ptr<IoEngine> engine;
};

TEST_F(PackedFetches, InTheOrderOfThePackComeManyWithOneRead) {
  start();
  for (unsigned i = 0; i < k_files; ++i) add(name(i));
  run();
  for (unsigned i = 0; i < k_files; ++i) expect_whole(*orders[i], content(i));
  EXPECT_EQ(reads(), (k_files + PackedSpan::k_most_files - 1) / PackedSpan::k_most_files);
}

TEST_F(PackedFetches, AgainstTheOrderOfThePackEachIsReadByItself) {
  start();
  for (unsigned i = 0; i < k_files; ++i) add(name(k_files - 1 - i));
  run();
  for (unsigned i = 0; i < k_files; ++i) expect_whole(*orders[i], content(k_files - 1 - i));
  EXPECT_EQ(reads(), k_files);
}

TEST_F(PackedFetches, NothingIsReadForWhatLiesFarBetweenThem) {
  for (unsigned i = 0; i < 20; ++i) {
    tree.write("b/" + std::to_string(100 + i) + "a", tests::content_of(100, i));
    tree.write("b/" + std::to_string(100 + i) + "b", tests::content_of(PackedSpan::k_most_gap, i));
  }
  start();
  for (unsigned i = 0; i < 20; ++i) add("b/" + std::to_string(100 + i) + "a");
  run();
  EXPECT_EQ(reads(), 20U);
  for (unsigned i = 0; i < 20; ++i) expect_whole(*orders[i], tests::content_of(100, i));
}

TEST_F(PackedFetches, AFewBytesBetweenThemCostLessThanAnotherRead) {
  start();
  for (unsigned i = 0; i < 40; i += 2) add(name(i));
  run();
  EXPECT_EQ(reads(), 1U);
  for (unsigned i = 0; i < 20; ++i) expect_whole(*orders[i], content(2 * i));
}

TEST_F(PackedFetches, ASpanIsNoLongerThanItMayBe) {
  for (unsigned i = 0; i < 10; ++i) tree.write("b/" + std::to_string(i), tests::content_of(300'000, i));
  tree.write("b/x", tests::content_of(PackedSpan::k_most_bytes, 1));
  start();
  for (unsigned i = 0; i < 10; ++i) add("b/" + std::to_string(i));
  Order& large = add("b/x");
  run();
  for (unsigned i = 0; i < 10; ++i) expect_whole(*orders[i], tests::content_of(300'000, i));
  // Three fit; a segment of the pack ends between some of them.
  EXPECT_GE(reads(), 4U);
  EXPECT_LE(reads(), 7U);
  // With its header it is longer than any span.
  expect_whole(large, tests::content_of(PackedSpan::k_most_bytes, 1));
}

TEST_F(PackedFetches, WhatASpanDoesNotAnswerIsFetchedByItself) {
  start();
  for (unsigned i = 0; i < 40; ++i) add(name(i));
  Order& missing = add("a/none");
  for (unsigned i = 40; i < 51; ++i) add(name(i));
  Order& link = add("a/f1050x");
  for (unsigned i = 51; i < k_files; ++i) add(name(i));
  Order& directory = add("a");
  Order& again = add(name(7));
  run();
  for (const auto& one : orders) {
    if (one.get() == &missing || one.get() == &link || one.get() == &directory) continue;
    expect_whole(*one, content(static_cast<unsigned>(std::stoi(one->text.substr(11))) - 1000));
  }
  EXPECT_EQ(missing.result.ending, Ending::failed);
  EXPECT_EQ(missing.result.error, ENOENT);
  EXPECT_EQ(link.result.ending, Ending::whole);
  EXPECT_EQ(link.content(), content(50));
  EXPECT_FALSE(link.file.is_physical);
  EXPECT_EQ(directory.result.ending, Ending::declined);
  EXPECT_EQ(directory.result.reason, Client::k_not_regular);
  EXPECT_LE(reads(), 12U);
  EXPECT_EQ(again.times_ended, 1);
}

TEST_F(PackedFetches, OfADamagedRecordOnlyItselfFails) {
  start();
  const std::string whole = tests::bytes_of(tree.pack);
  const std::size_t at = whole.find(content(20));
  ASSERT_NE(at, std::string::npos);
  const int fd = ::open(tree.pack.c_str(), O_WRONLY | O_CLOEXEC);
  const char wrong = static_cast<char>(whole[at] ^ 1);
  ASSERT_EQ(pwrite(fd, &wrong, 1, static_cast<off_t>(at)), 1);
  close(fd);
  for (unsigned i = 0; i < 60; ++i) add(name(i));
  run();
  for (unsigned i = 0; i < 60; ++i) {
    if (i != 20) {
      expect_whole(*orders[i], content(i));
      continue;
    }
    EXPECT_EQ(orders[i]->result.ending, Ending::failed);
    EXPECT_EQ(orders[i]->result.error, EIO);
    EXPECT_EQ(orders[i]->asked, 0) << "room for what is damaged";
  }
  EXPECT_EQ(reads(), 2U);
}

TEST_F(PackedFetches, OneThatIsDeclinedLeavesTheOthersAlone) {
  start();
  client.most = 7000;
  for (unsigned i = 0; i < 60; ++i) add(name(i));
  run();
  for (unsigned i = 0; i < 60; ++i) {
    if (content(i).size() <= 7000) {
      expect_whole(*orders[i], content(i));
    } else {
      EXPECT_EQ(orders[i]->result.ending, Ending::declined);
      EXPECT_EQ(orders[i]->result.reason, Client::k_too_large);
      EXPECT_FALSE(orders[i]->result.has_room);
    }
  }
  EXPECT_EQ(reads(), 1U);
}

// Once the client returns, nothing more of the span reaches it; what it was not told yet ends then.
TEST_F(PackedFetches, AStopInTheMidstEndsEachOnce) {
  start();
  for (unsigned i = 0; i < 100; ++i) add(name(i));
  std::binary_semaphore inside{0}, may_leave{0};
  client.when_ended = [&](Order& one) {
    if (&one != orders[5].get()) return;
    inside.release();
    may_leave.acquire();
  };
  for (const auto& one : orders) engine->submit(*one);
  go_on.release();
  inside.acquire();
  std::thread stopper([&] { engine->stop(0); });
  // What waits is cancelled first; by then the others are in flight.
  client.wait_for(1 + 5 + 100 - PackedSpan::k_most_files);
  may_leave.release();
  stopper.join();
  unsigned abandoned = 0;
  for (unsigned i = 0; i < 100; ++i) {
    EXPECT_EQ(orders[i]->times_ended, 1);
    EXPECT_FALSE(orders[i]->result.room_is_lost);
    abandoned += orders[i]->result.ending == Ending::abandoned;
    if (i <= 5) expect_whole(*orders[i], content(i));
    EXPECT_EQ(orders[i]->result.ending == Ending::cancelled, i >= PackedSpan::k_most_files) << i;
  }
  // It may have been quicker than the stop.
  EXPECT_LE(abandoned, PackedSpan::k_most_files - 6);
}

TEST_F(PackedFetches, ManyAtATimeInAnyOrderEndWhole) {
  start(16);
  go_on.release();
  for (unsigned round = 0; round < 20; ++round) {
    const std::size_t begin = orders.size();
    // Runs of eight, the runs in no order.
    for (unsigned i = 0; i < k_files; ++i) add(name((i / 8 * 7 + round) % (k_files / 8) * 8 + i % 8));
    for (std::size_t n = begin; n < orders.size(); ++n) engine->submit(*orders[n]);
    if (round % 4 == 3) engine->set_depth(1 + round);
    if (round % 5 == 4) engine->drain();
  }
  engine->drain();
  EXPECT_EQ(orders.size(), 20 * k_files);
  for (const auto& one : orders) {
    EXPECT_EQ(one->times_ended, 1);
    expect_whole(*one, content(static_cast<unsigned>(std::stoi(one->text.substr(11))) - 1000));
  }
  EXPECT_LT(reads(), 20 * k_files);
}

}  // namespace
}  // namespace cube::prefetch::testing
