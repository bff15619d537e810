// A fetch for which no program waits yet, step by step and without an engine.
#include "cache/fill/background_fill.h"

#include <gtest/gtest.h>

#include <thread>

#include "cache/fill/recent_misses.h"
#include "tests/support/child.h"
#include "tests/support/ring_files.h"
#include "tests/support/temp_dir.h"

namespace cube::cache {
namespace {

using base::Counter;
using tests::Child;
using tests::Gate;
using tests::k_mib;
using tests::request_for;
using Begin = BackgroundFill::Begin;

struct BackgroundFillTest : testing::Test {
  tests::TempDir dir;
  tests::TestCache cache{32 * k_mib};

  std::string make(const std::string& name, std::size_t size = 50'000) const {
    return dir.write(name, tests::content_of(name, 0, size));
  }
  // Does the work of an engine between begin and publish. Returns false if the file was not
  // accepted.
  static bool read(BackgroundFill& fetch, const std::string& path) {
    const auto stat = stat_path(AT_FDCWD, path.c_str(), 0);
    if (!stat || fetch.accept({*stat, true}) != RecordFill::Next::read) return false;
    const int fd = open(path.c_str(), O_RDONLY);
    const bool whole = ::read(fd, fetch.room(), stat->size) == static_cast<ssize_t>(stat->size);
    close(fd);
    return whole;
  }
  bool prefetch(const std::string& path, bool use_ring = true) {
    BackgroundFill fetch = cache.cache->ahead().fill(path, use_ring);
    return fetch.begin() == Begin::fetch && read(fetch, path) && fetch.publish();
  }
  Begin begin(const std::string& path, bool use_ring = true) {
    BackgroundFill fetch = cache.cache->ahead().fill(path, use_ring);
    return fetch.begin();
  }
  // Opens the file like a program. Returns true if the file was cached and has the right bytes.
  bool open_hits(const std::string& path, std::size_t size = 50'000) {
    const std::uint64_t hits = cache.count(Counter::hits_ram);
    const OpenOutcome outcome = cache->open(request_for(path));
    if (outcome.kernel_fd >= 0) close(outcome.kernel_fd);
    const std::string name = path.substr(path.rfind('/') + 1);
    return outcome.pin && tests::bytes_of(*outcome.pin) == tests::content_of(name, 0, size) &&
           cache.count(Counter::hits_ram) == hits + 1;
  }
  void fill_resident_pool() {
    for (int i = 0; i < 64 && !cache->ahead().is_full(); ++i) {
      const std::string path = make("filler" + std::to_string(i), 1'900'000);
      const OpenOutcome outcome = cache->open(request_for(path));
      if (outcome.kernel_fd >= 0) close(outcome.kernel_fd);
    }
    // Fills up the last segment.
    for (int i = 0; i < 64 && !cache->ahead().is_full(); ++i) {
      const std::string path = make("small" + std::to_string(i), 60'000);
      const OpenOutcome outcome = cache->open(request_for(path));
      if (outcome.kernel_fd >= 0) close(outcome.kernel_fd);
    }
    ASSERT_TRUE(cache->ahead().is_full());
  }
};

TEST_F(BackgroundFillTest, OpenHitsAPrefetchedFile) {
  const std::string path = make("f");
  ASSERT_TRUE(prefetch(path));
  EXPECT_TRUE(open_hits(path));
  EXPECT_TRUE(open_hits(path));
  EXPECT_EQ(cache.count(Counter::prefetch_early), 1U);
  EXPECT_EQ(begin(path), Begin::cached);
}

TEST_F(BackgroundFillTest, LeavesNothingBehindWhenItIsDropped) {
  const std::string path = make("f");
  {
    BackgroundFill fetch = cache.cache->ahead().fill(path, false);
    ASSERT_EQ(fetch.begin(), Begin::fetch);
    ASSERT_TRUE(read(fetch, path));
    EXPECT_EQ(begin(path), Begin::cached) << "another has the turn";
  }
  EXPECT_EQ(cache->region().header().records.load(), 0U);
  EXPECT_EQ(begin(path), Begin::fetch);
}

TEST_F(BackgroundFillTest, OpenDuringAFillWaitsForTheRecord) {
  const std::string path = make("f");
  std::unique_ptr<BackgroundFill> own(new BackgroundFill(cache.cache->ahead().fill(path, false)));
  BackgroundFill& fetch = *own;
  ASSERT_EQ(fetch.begin(), Begin::fetch);
  ASSERT_TRUE(read(fetch, path));
  FlightSlot& slot = cache->region().flight_slot(
      static_cast<std::uint32_t>(base::hash_path(path) % k_flight_slots));
  bool is_hit = false;
  std::thread program([&] { is_hit = open_hits(path); });
  while (slot.waiting.load() == 0) std::this_thread::yield();
  EXPECT_TRUE(fetch.publish());
  // The engine's client drops the fetch, which ends the flight.
  own.reset();
  program.join();
  EXPECT_TRUE(is_hit);
  EXPECT_EQ(cache.count(Counter::prefetch_late), 1U);
  EXPECT_EQ(cache.count(Counter::prefetch_early), 0U);
  EXPECT_EQ(cache.count(Counter::misses), 0U);
}

TEST_F(BackgroundFillTest, FillsTheRingIfOtherMemoryIsFull) {
  cache->ahead().ring().make(8 * k_mib);
  fill_resident_pool();
  const std::string path = make("f");
  EXPECT_FALSE(prefetch(path, false));
  ASSERT_TRUE(prefetch(path));
  const Pin pin = cache->find(request_for(path));
  ASSERT_TRUE(pin);
  EXPECT_TRUE(cache->ahead().ring().holds(*pin));
  EXPECT_TRUE(open_hits(path));
  EXPECT_EQ(cache.count(Counter::prefetch_early), 1U);
}

TEST_F(BackgroundFillTest, KeepsARecordReadFromTheRingForItsNextReader) {
  cache->ahead().ring().make(8 * k_mib);
  fill_resident_pool();
  const std::string path = make("f");
  ASSERT_TRUE(prefetch(path));
  const auto unread = [&] {
    std::uint32_t sum = 0;
    for (std::uint32_t s = cache->ahead().ring().first_segment();
         s < cache->ahead().ring().end_segment(); ++s)
      sum += cache->ahead().ring().unread(s);
    return sum;
  };
  EXPECT_TRUE(open_hits(path));
  EXPECT_EQ(unread(), 0U);
  EXPECT_EQ(begin(path, /*use_ring=*/false), Begin::cached);
  EXPECT_EQ(unread(), 0U) << "by who has nothing to do with the ring";
  BackgroundFill again = cache.cache->ahead().fill(path, true);
  EXPECT_EQ(again.begin(), Begin::cached);
  EXPECT_TRUE(again.is_wanted_again());
  EXPECT_EQ(unread(), 1U);
  EXPECT_TRUE(again.place().is_in_ring);
  EXPECT_TRUE(open_hits(path));
  EXPECT_EQ(unread(), 0U);
}

TEST_F(BackgroundFillTest, SkipsARecentMissOnce) {
  cache->ahead().ring().make(8 * k_mib);
  fill_resident_pool();
  const std::string path = make("f");
  EXPECT_FALSE(open_hits(path));
  EXPECT_EQ(begin(path), Begin::demanded);
  EXPECT_EQ(begin(path), Begin::fetch);
}

// A miss in an earlier epoch caused the prefetch of this file to be skipped. It must not be skipped
// again.
TEST_F(BackgroundFillTest, MissOfASkippedFetchDoesNotSkipTheNext) {
  cache->ahead().ring().make(8 * k_mib);
  fill_resident_pool();
  const std::string path = make("f");
  EXPECT_FALSE(open_hits(path));
  EXPECT_EQ(begin(path), Begin::demanded);
  EXPECT_FALSE(open_hits(path));
  EXPECT_EQ(begin(path), Begin::fetch);
  // A much later miss counts like any other miss.
  std::atomic<std::uint64_t>& row = cache->region().recent_miss(base::hash_path(path));
  EXPECT_FALSE(open_hits(path));
  EXPECT_EQ(begin(path), Begin::demanded);
  const std::uint64_t long_ago =
      (recent_misses::this_second() + recent_misses::k_second_mask - 60) %
      recent_misses::k_second_mask;
  row.store(recent_misses::name_of(base::hash_path(path)) | std::max<std::uint64_t>(long_ago, 1));
  EXPECT_FALSE(open_hits(path));
  EXPECT_EQ(begin(path), Begin::demanded);
}

TEST_F(BackgroundFillTest, FileFetchedByTheProgramMeanwhileIsADuplicate) {
  const std::string path = make("f");
  BackgroundFill fetch = cache.cache->ahead().fill(path, false);
  {
    // Other paths hold all flight slots to which this file is assigned, so the file gets no slot,
    // and the program does not wait.
    SingleFlight flights(cache->region());
    SingleFlight::Ticket tickets[4];
    for (std::uint64_t other = 1; SingleFlight::Ticket & ticket : tickets)
      ASSERT_EQ(flights.begin(base::hash_path(path) ^ (other++ << 60), ticket),
                SingleFlight::Outcome::mine);
    ASSERT_EQ(fetch.begin(), Begin::fetch);
  }
  const OpenOutcome outcome = cache->open(request_for(path));
  EXPECT_TRUE(outcome.pin);
  const auto stat = stat_path(AT_FDCWD, path.c_str(), 0);
  EXPECT_EQ(fetch.accept({*stat, true}), RecordFill::Next::done);
  EXPECT_TRUE(fetch.was_fetched_twice());
}

TEST_F(BackgroundFillTest, AFileThatHasChangedIsFetchedAgain) {
  const std::string path = make("f");
  ASSERT_TRUE(prefetch(path));
  ASSERT_TRUE(tests::TempDir::write_file(path, std::string(70'000, 'n')));
  BackgroundFill fetch = cache.cache->ahead().fill(path, false);
  const auto now = stat_path(AT_FDCWD, path.c_str(), 0);
  EXPECT_EQ(fetch.accept({*now, true}), RecordFill::Next::read);
  EXPECT_FALSE(cache->find(request_for(path)));
  EXPECT_EQ(cache.count(Counter::prefetch_early), 0U);
}

// All ranks open one file at the same time while there is no room. No rank waits for the open of
// another rank.
TEST_F(BackgroundFillTest, EndsItsFlightIfThereIsNoRoom) {
  cache->ahead().ring().make(8 * k_mib);
  fill_resident_pool();
  const std::string path = make("f");
  static std::atomic<std::uint64_t> held;
  static FlightSlot* slot;
  slot = &cache->region().flight_slot(
      static_cast<std::uint32_t>(base::hash_path(path) % k_flight_slots));
  held = UINT64_MAX;
  OpenRequest request = request_for(path);
  request.before_kernel_open = [] { held = slot->word.load(); };
  const OpenOutcome outcome = cache->open(request);
  EXPECT_GE(outcome.kernel_fd, 0);
  close(outcome.kernel_fd);
  EXPECT_EQ(held.load(), 0U);
}

TEST_F(BackgroundFillTest, CountsTheProgramsWaiting) {
  const std::string path = make("f");
  static ProcessSlot* process;
  static std::uint32_t waits;
  process = &cache->region().own_process();
  waits = 0;
  OpenRequest request = request_for(path);
  request.before_kernel_open = [] { waits = process->demand_waits.load(); };
  EXPECT_TRUE(cache->open(request).pin);
  EXPECT_EQ(waits, 1U);
  EXPECT_EQ(process->demand_waits.load(), 0U);
  EXPECT_EQ(process->demand_fetches.load(), 1U);
  EXPECT_GT(process->demand_ns.load(), 0U);
  EXPECT_TRUE(cache->open(request_for(path)).pin);
  EXPECT_EQ(process->demand_fetches.load(), 1U) << "a hit waits for nobody";
}

TEST_F(BackgroundFillTest, NextLeaderRestartsFetchesOfADeadLeader) {
  const std::string path = make("f");
  Gate ready;
  Child leader([&] {
    FileCache* const own = tests::attach_cache(cache.config, cache.options.job);
    CHILD_CHECK(own != nullptr);
    BackgroundFill fetch = own->ahead().fill(path, false);
    CHILD_CHECK(fetch.begin() == Begin::fetch && read(fetch, path));
    own->region().own_process().demand_fetches.store(77);
    ready.give();
    return tests::wait_for_death();
  });
  ASSERT_TRUE(ready.take());
  EXPECT_EQ(begin(path), Begin::cached);
  leader.kill();
  cache->region().reap();
  EXPECT_EQ(begin(path), Begin::fetch);
  EXPECT_TRUE(prefetch(path));
  EXPECT_TRUE(open_hits(path));
  for (std::uint32_t i = 0; i < cache->region().layout().process_slots; ++i)
    EXPECT_NE(cache->region().process_slot(i).demand_fetches.load(), 77U);
}

}  // namespace
}  // namespace cube::cache
