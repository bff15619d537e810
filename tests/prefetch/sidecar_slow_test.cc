// A sidecar whose origin hangs.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "cache/base/clock.h"
#include "prefetch/threads/background_thread.h"
#include "prefetch/work/sidecar.h"
#include "tests/bench/lagfs/mount.h"
#include "tests/support/small_cache.h"

namespace cube::prefetch {
namespace {

class SlowSidecar : public ::testing::Test {
 protected:
  void SetUp() override {
    const int fd = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd < 0) GTEST_SKIP() << "/dev/fuse: " << strerror(errno);
    close(fd);
    lagfs::testing::write_file(mount.source("f"), "content");
    mount.start(lagfs::testing::fast({"--direct"}));
  }
  void TearDown() override {
    if (mount.is_mounted()) say("clear");
    if (sidecar != nullptr) sidecar->stop();
    EXPECT_TRUE(wait_for_background_threads(60'000));
  }
  void say(const std::string& line) {
    const int fd = ::open(mount.at(".lagfs/script").c_str(), O_WRONLY | O_CLOEXEC);
    EXPECT_EQ(write(fd, line.data(), line.size()), static_cast<ssize_t>(line.size()));
    close(fd);
  }
  // The number of the current lead.
  std::uint64_t lead() const { return cache.region().header().lead_word.load() >> 32; }

  tests::SmallCache files{1};
  lagfs::testing::Mount mount;
  cache::FileCache& cache = *files.cache.cache;
  Sidecar* sidecar = nullptr;
};

TEST_F(SlowSidecar, LeaderThatLostTheLeadTakesPartAgain) {
  base::Config& config = files.cache.config;
  config.prefixes = {mount.target()};
  config.prefetch_list = files.dir.write("list", mount.at("f") + "\n");
  config.io_engine = base::EngineKind::threads;
  cache.ahead().want();
  say("hold read 1");
  sidecar = Sidecar::start(cache, config);
  ASSERT_NE(sidecar, nullptr);
  tests::never_freed(sidecar);
  // Answers when a call is held.
  ASSERT_NE(lagfs::testing::read_file(mount.at(".lagfs/held")), "0\n");
  // Looks too fast for the beat of the leader.
  cache::LeadClaim other = cache.ahead().lead_claim();
  for (std::uint64_t now = base::monotonic_ns(); !other.look(now);)
    now += cache::LeadClaim::k_between_looks_ns;
  const std::uint64_t own = lead();
  other.give_up();
  const std::uint64_t until = base::monotonic_ns() + 60'000 * base::k_ns_per_ms;
  while (lead() == own && base::monotonic_ns() < until) std::this_thread::yield();
  EXPECT_NE(lead(), own);
}

}  // namespace
}  // namespace cube::prefetch
