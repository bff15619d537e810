// Opens and mappings of a large file wait for threads that are fetching its pages, and read-ahead
// waits for opens.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <string>
#include <thread>

#include "cache/base/clock.h"
#include "cache/base/hash.h"
#include "cache/file_cache.h"
#include "cache/region/fetch_scope.h"
#include "cache/region/large/chunks.h"
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
  LargeFile::Pace pace;

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
    // Stays nonzero until the flight ends, even if the thread stops waiting.
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

// The flight of the block that begins at `at`.
struct HeldBlock {
  SingleFlight flights;
  SingleFlight::Ticket ticket;

  HeldBlock(FileCache& cache, const std::string& path, int fd, std::uint64_t at)
      : flights(cache.region()) {
    const std::uint64_t block = cache.large().block();
    const auto stat = stat_fd(fd, 0);
    EXPECT_EQ(flights.begin_prefetch(block_hash_of(key_of_file(path, *stat), at / block), ticket),
              SingleFlight::Prefetch::mine);
  }
  std::uint32_t waiting() const { return ticket.hold().slot->waiting.load(); }
};

TEST_F(LargeReading, MappingWaitsForABlockThatAnotherThreadFetches) {
  HeldBlock held(*cache.cache, path, fd, 128 << 10);
  const FdEpoch epoch(fd);
  const LargeFile::Range range{0, file->size()};
  bool is_brought = false;
  EXPECT_TRUE(waits_for(held.ticket, [&] {
    is_brought = cache->large().bring_to_map(*file, epoch, range, UINT64_MAX, pace);
  }));
  EXPECT_TRUE(is_brought);
  EXPECT_EQ(cache->large().present_bytes(*file, range), file->size());
}

TEST_F(LargeReading, MappingGivesUpAtItsTimeAndLetsOthersWaitOn) {
  const HeldBlock held(*cache.cache, path, fd, 0);
  EXPECT_FALSE(cache->large().bring_to_map(*file, FdEpoch(fd), {0, file->size()},
                                           base::monotonic_ns() + 50'000'000, pace));
  // The mapping has waited, but not for the whole second after which the flight would be overdue
  // (2).
  EXPECT_EQ(held.waiting(), 1U);
}

// Calls `act` in a signal handler that interrupts a fetch of this thread.
void interrupt_fetch(std::function<void()> act) {
  static std::function<void()> in_handler;
  in_handler = std::move(act);
  const auto before = signal(SIGUSR1, [](int) { in_handler(); });
  {
    const FetchScope scope;
    raise(SIGUSR1);
  }
  signal(SIGUSR1, before);
}

TEST_F(LargeReading, MappingOfAHandlerThatInterruptsAFetchDoesNotWait) {
  const HeldBlock held(*cache.cache, path, fd, 0);
  bool is_brought = true;
  interrupt_fetch([&] {
    is_brought =
        cache->large().bring_to_map(*file, FdEpoch(fd), {0, file->size()}, UINT64_MAX, pace);
  });
  EXPECT_FALSE(is_brought);
  EXPECT_EQ(held.waiting(), 0U);
}

TEST_F(LargeReading, OpenOfAHandlerThatInterruptsAFetchDoesNotWait) {
  const SingleFlight::Ticket reading = cache->large().begin_reading(*file);
  int opened = -1;
  interrupt_fetch([&] { opened = cache->open(tests::request_for(path)).kernel_fd; });
  EXPECT_GE(opened, 0);
  EXPECT_EQ(reading.hold().slot->waiting.load(), 0U);
  close(opened);
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
