// Opens of a large file and threads that read it ahead take turns.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "cache/base/hash.h"
#include "cache/file_cache.h"
#include "cache/region/single_flight.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

struct LargeReading : testing::Test {
  tests::TempDir dir;
  tests::TestCache cache{64 * tests::k_mib, [](base::Config& config) {
                           config.max_file = 100'000;
                           config.block = 64 << 10;
                         }};
  const std::string path = dir.write("f", tests::content_of("f", 1, 1'000'000));
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  LargeFile* file = cache->large().begin(path, fd);

  void SetUp() override {
    ASSERT_NE(file, nullptr);
    std::byte first{};
    ASSERT_EQ(cache->large().read(*file, FdEpoch(fd), &first, 1, 0), 1);
  }
  void TearDown() override {
    if (file != nullptr) file->end();
    close(fd);
  }
  // Runs `body` in a thread while the flight is held. Returns whether the body waited for the
  // flight's end.
  template <typename Body>
  static bool waits_for(SingleFlight::Ticket& held, const Body& body) {
    std::atomic<bool> is_done{false};
    std::thread thread([&] {
      body();
      is_done = true;
    });
    // Stays set until the flight ends, even if the thread has stopped waiting.
    const std::atomic<std::uint32_t>& waiting = held.hold().slot->waiting;
    while (waiting.load() == 0 && !is_done) sched_yield();
    const bool has_waited = waiting.load() != 0;
    held = {};
    thread.join();
    return has_waited;
  }
};

TEST_F(LargeReading, OpenWaitsForPagesBeingFetched) {
  SingleFlight::Ticket other = cache->large().begin_reading(*file),
                       reading = cache->large().begin_reading(*file);
  ASSERT_NE(reading.hold().slot, nullptr);
  ASSERT_NE(reading.hold().slot, other.hold().slot);
  other = {};
  int opened = -1;
  EXPECT_TRUE(
      waits_for(reading, [&] { opened = cache->open(tests::request_for(path)).kernel_fd; }));
  EXPECT_GE(opened, 0);
  close(opened);
}

TEST_F(LargeReading, ReadAheadYieldsToAnOpen) {
  SingleFlight flights(cache->region());
  SingleFlight::Ticket opening, reading;
  ASSERT_EQ(flights.begin(base::hash_path(path), opening), SingleFlight::Outcome::mine);
  EXPECT_TRUE(waits_for(opening, [&] { reading = cache->large().begin_reading(*file); }));
  EXPECT_NE(reading.hold().slot, nullptr);
}

TEST_F(LargeReading, ReadAheadEndsItsFlightOnceItsPagesArePresent) {
  const std::atomic<bool> is_stopping{false};
  LargeFile::Range range{0, file->size()};
  while (!range.is_empty()) cache->large().bring_ahead(*file, fd, range, is_stopping);
  EXPECT_EQ(cache->large().present_bytes(*file, {0, file->size()}), file->size());
  EXPECT_EQ(cache->open(tests::request_for(path)).unless_large, base::Counter::bypassed_size);
}

TEST(SingleFlightEnd, WaitReturnsImmediatelyIfThereIsNoFlight) {
  const tests::TestRegion region;
  SingleFlight flights(*region);
  flights.wait_for_end(1);
  EXPECT_FALSE(flights.is_under_way(1));
  SingleFlight::Ticket ticket;
  ASSERT_EQ(flights.begin(1, ticket), SingleFlight::Outcome::mine);
  EXPECT_TRUE(flights.is_under_way(1));
}

}  // namespace
}  // namespace cube::cache
