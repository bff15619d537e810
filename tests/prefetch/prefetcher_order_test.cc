// The prefetcher finds the first fetch in the list's order that has not ended. Fetches end in any
// order, and the next leader continues from this fetch.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "cache/region/lanes.h"
#include "prefetch/work/prefetcher.h"
#include "tests/bench/lagfs/mount.h"
#include "tests/support/small_cache.h"

namespace cube::prefetch {
namespace {

class PrefetcherOrder : public ::testing::Test {
 protected:
  void SetUp() override {
    const int fd = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd < 0) GTEST_SKIP() << "/dev/fuse: " << strerror(errno);
    close(fd);
    for (std::uint64_t i = 0; i < 8; ++i)
      lagfs::testing::write_file(mount.source(name(i)), "content");
    mount.start(lagfs::testing::fast({"--direct"}));
    Prefetcher::Options options;
    options.engine = base::EngineKind::threads;
    options.depth = 4;
    std::string why;
    prefetcher = Prefetcher::make(*files.cache.cache, options, why);
    ASSERT_NE(prefetcher, nullptr) << why;
  }
  void TearDown() override {
    if (mount.is_mounted()) say("clear");
    prefetcher.reset();
  }
  static std::string name(std::uint64_t i) { return "f" + std::to_string(i); }
  void say(const std::string& line) {
    const int fd = ::open(mount.at(".lagfs/script").c_str(), O_WRONLY | O_CLOEXEC);
    EXPECT_EQ(write(fd, line.data(), line.size()), static_cast<ssize_t>(line.size()));
    close(fd);
  }
  void offer(std::uint64_t i) {
    PlannedFile file;
    file.path = mount.at(name(i));
    file.reader = 3;
    file.sequence = i;
    ASSERT_TRUE(prefetcher->offer(file));
  }

  // The number of pins that this process has on segments.
  std::uint64_t claims() const {
    return pins_of(files.cache->region(), files.cache->region().own_slot());
  }

  tests::SmallCache files{1};
  lagfs::testing::Mount mount;
  std::unique_ptr<Prefetcher> prefetcher;
};

// The next leader cannot continue at the number of ended fetches, because it would skip files that
// a slow origin still delays.
TEST_F(PrefetcherOrder, FirstUnendedIsTheLowestPendingFile) {
  EXPECT_FALSE(prefetcher->first_unended(3));
  say("hold read 1");
  offer(2);
  // Answers when a call is held
  ASSERT_NE(lagfs::testing::read_file(mount.at(".lagfs/held")), "0\n");
  EXPECT_EQ(prefetcher->first_unended(3), 2U);
  for (std::uint64_t i = 3; i < 8; ++i) offer(i);
  while (prefetcher->counts().fetched != 5) std::this_thread::yield();
  EXPECT_EQ(prefetcher->first_unended(3), 2U);
  EXPECT_FALSE(prefetcher->first_unended(4));
  say("clear");
  while (!prefetcher->is_idle()) std::this_thread::yield();
  EXPECT_FALSE(prefetcher->first_unended(3));
}

TEST_F(PrefetcherOrder, NoMoreAreInFlightThanTheDepth) {
  say("hold read 1 8");
  for (std::uint64_t i = 0; i < 8; ++i) offer(i);
  EXPECT_EQ(prefetcher->in_flight(), 4U);
}

// When the process ends, the leading thread also stops the prefetcher. The process must wait for
// this stop, because otherwise its ring would keep the mount busy.
TEST_F(PrefetcherOrder, SecondStopWaitsForTheFirst) {
  say("hold read 1");
  offer(0);
  ASSERT_NE(lagfs::testing::read_file(mount.at(".lagfs/held")), "0\n");
  std::thread first([&] { prefetcher->stop(300); });
  while (prefetcher->wants_more()) std::this_thread::yield();
  prefetcher->stop(0);
  EXPECT_TRUE(prefetcher->is_idle());
  first.join();
}

// The kernel can write to this room as long as the process runs.
TEST_F(PrefetcherOrder, RoomOfAHangingReadIsNeverReused) {
  say("hold read 1");
  offer(0);
  ASSERT_NE(lagfs::testing::read_file(mount.at(".lagfs/held")), "0\n");
  prefetcher->stop(0);
  EXPECT_EQ(claims(), 1U);
}

}  // namespace
}  // namespace cube::prefetch
