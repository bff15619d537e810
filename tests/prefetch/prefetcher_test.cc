// Offered files either reach the cache or are handed back with a reason. A wait for a full ring
// logs no message.
#include "prefetch/work/prefetcher.h"

#include <gtest/gtest.h>

#include <thread>

#include "cache/region/lanes.h"
#include "tests/support/small_cache.h"

namespace cube::prefetch {
namespace {

using base::Counter;
using tests::k_mib;
using tests::SmallCache;

struct None final : PathSource {
  Next next(PlannedFile&) override { return Next::none_yet; }
};

struct PrefetcherTest : ::testing::Test {
  SmallCache files{700};
  cache::FileCache& cache = *files.cache.cache;
  std::unique_ptr<Prefetcher> prefetcher;
  std::uint64_t sequence = 0;

  void make(bool use_ring, base::EngineKind engine = base::EngineKind::threads) {
    if (use_ring) cache.ahead().ring().make(8 * k_mib);
    Prefetcher::Options options;
    options.engine = engine;
    options.depth = 8;
    options.use_ring = use_ring;
    options.prefixes = {files.dir.path()};
    std::string why;
    prefetcher = Prefetcher::make(cache, options, why);
    ASSERT_NE(prefetcher, nullptr) << why;
  }
  PlannedFile planned(const std::string& path, std::uint32_t reader = 3) {
    PlannedFile file;
    file.path = path;
    file.reader = reader;
    file.sequence = sequence++;
    return file;
  }
  void offer(const std::string& path) {
    PlannedFile file = planned(path);
    for (auto seen = prefetcher->progress().now(); !prefetcher->offer(file);
         seen = prefetcher->progress().now())
      prefetcher->progress().wait(seen, 10'000'000);
  }
  void wait_until_idle() {
    for (auto seen = prefetcher->progress().now(); !prefetcher->is_idle();
         seen = prefetcher->progress().now())
      prefetcher->progress().wait(seen, 10'000'000);
  }
  void wait_until_nothing_is_under_way() {
    while (prefetcher->in_flight() != 0) std::this_thread::yield();
  }
  // How many files of reader 3 were settled since the last call.
  std::uint32_t settled() {
    std::uint32_t n = 0;
    prefetcher->ring_watch().look({});
    for (const Settled& row : prefetcher->take_settled()) n += row.reader == 3 ? row.files : 0;
    return n;
  }
  std::uint64_t count(Counter counter) const { return files.cache.count(counter); }
  // Offers files until the next file must wait for room in the ring. Returns how many were offered.
  std::size_t fill() {
    std::size_t n = 0;
    while (n < files.paths.size() && !(prefetcher->in_flight() == 0 && prefetcher->is_blocked())) {
      PlannedFile file = planned(files.paths[n]);
      if (prefetcher->offer(file)) {
        ++n;
      } else {
        std::this_thread::yield();
      }
      prefetcher->pump();
    }
    return n;
  }
};

TEST_F(PrefetcherTest, FetchesOfferedFiles) {
  make(false);
  for (int i = 0; i < 100; ++i) offer(files.paths[i]);
  wait_until_idle();
  EXPECT_EQ(prefetcher->counts().fetched, 100U);
  EXPECT_EQ(prefetcher->counts().fetched_bytes, 100U * SmallCache::k_bytes);
  SmallCache::Counts counts;
  for (int i = 0; i < 100; ++i) files.open(cache, files.paths[i], counts);
  EXPECT_EQ(counts.hits, 100);
  EXPECT_EQ(counts.wrong, 0);
  EXPECT_EQ(count(Counter::prefetch_early), 100U);
  EXPECT_EQ(count(Counter::misses), 0U);
  for (int i = 0; i < 100; ++i) offer(files.paths[i]);
  wait_until_idle();
  EXPECT_EQ(prefetcher->counts().cached, 100U);
  EXPECT_EQ(count(Counter::origin_opens), 100U);
  EXPECT_EQ(settled(), 200U);
}

// The leader reduces its depth according to these counts (pace/depth.h).
TEST_F(PrefetcherTest, DistinguishesFetchesOfAJobFromThoseAheadOfIt) {
  make(false);
  for (int i = 0; i < 10; ++i) offer(files.paths[i]);
  wait_until_idle();
  SmallCache::Counts counts;
  for (int i = 0; i < 12; ++i) files.open(cache, files.paths[i], counts);
  const std::vector<cache::Demand> jobs = cache.ahead().demand_of_jobs();
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(jobs[0].job, cache.ahead().own_job());
  EXPECT_EQ(jobs[0].ahead, 10U);
  EXPECT_EQ(jobs[0].fetches, 2U);
  const Prefetcher::Took took = prefetcher->take_times();
  EXPECT_EQ(took.fetches, 10U);
  EXPECT_GT(took.ns, 0U);
  EXPECT_EQ(prefetcher->take_times().fetches, 0U);
}

TEST_F(PrefetcherTest, ReturnsUnfetchedFilesWithTheReason) {
  make(false);
  const std::string directory = files.dir / "directory", pipe = files.dir / "pipe",
                    large = files.dir / "large";
  mkdir(directory.c_str(), 0700);
  mkfifo(pipe.c_str(), 0600);
  ASSERT_TRUE(tests::TempDir::write_file(large, "x"));
  ASSERT_EQ(truncate(large.c_str(), 17 * k_mib), 0);
  for (const auto& path : {files.dir / "none", directory, pipe, large}) offer(path);
  wait_until_idle();
  const auto refused = prefetcher->take_refused();
  ASSERT_EQ(refused.size(), 4U);
  for (const RefusedFile& file : refused) {
    const std::string name = file.file.path.substr(file.file.path.rfind('/') + 1);
    const Refused expected = name == "none"        ? Refused::missing
                             : name == "directory" ? Refused::directory
                             : name == "pipe"      ? Refused::not_a_file
                                                   : Refused::too_large;
    EXPECT_EQ(file.why, expected) << name;
    EXPECT_EQ(file.error, name == "none" ? ENOENT : 0) << name;
  }
  EXPECT_EQ(prefetcher->counts().refused, 4U);
  EXPECT_TRUE(prefetcher->take_refused().empty());
}

TEST_F(PrefetcherTest, ReturnsFilesWithoutRoomIfThereIsNoRing) {
  make(false);
  for (const auto& path : files.paths) offer(path);
  wait_until_idle();
  const PrefetchCounts counts = prefetcher->counts();
  EXPECT_GT(counts.fetched, 100U);
  EXPECT_GT(counts.refused, 100U);
  EXPECT_EQ(counts.fetched + counts.refused, files.paths.size());
  for (const RefusedFile& file : prefetcher->take_refused()) EXPECT_EQ(file.why, Refused::no_room);
}

TEST_F(PrefetcherTest, RingHasEachFileBeforeItIsRead) {
  make(true);
  SmallCache::Counts counts;
  std::uint32_t opened = 0;
  std::size_t offered = 0;
  for (const auto& path : files.paths) {
    // Offers files, as far ahead as there is room, until this file is cached. It can be handed
    // back, and later files can use up the room.
    for (int blocked = 0; blocked < 100 && !cache.find(tests::request_for(path));) {
      PlannedFile file = planned(offered < files.paths.size() ? files.paths[offered] : path);
      if (offered < files.paths.size() && prefetcher->offer(file)) ++offered;
      prefetcher->pump();
      blocked = prefetcher->in_flight() == 0 && prefetcher->is_blocked() ? blocked + 1 : 0;
      std::this_thread::yield();
    }
    files.open(cache, path, counts);
    opened += settled();
  }
  wait_until_idle();
  opened += settled();
  EXPECT_GE(counts.hits, 680);
  EXPECT_EQ(counts.wrong, 0);
  EXPECT_GE(count(Counter::prefetch_early), 680U);
  EXPECT_LE(opened, files.paths.size()) << "each is settled once";
  EXPECT_GE(opened, 680U);
  // Some files were handed back, because there was less room than their average size suggested.
  EXPECT_LT(count(Counter::origin_opens), files.paths.size() * 5 / 4);
  EXPECT_EQ(tests::counters_of(cache.region()), "right");
}

// The files that filled the memory were not announced.
TEST_F(PrefetcherTest, FilesPassThroughTheRingOnceMemoryIsFull) {
  SmallCache::Counts before;
  for (const auto& path : files.paths) files.open(cache, path, before);
  const auto resident = static_cast<int>(count(Counter::misses));
  ASSERT_LT(resident, 500);
  make(true);
  // Files that are not in memory are offered first. The ring's segments replace some of the files
  // that are.
  std::vector<std::string> paths(files.paths.rbegin(), files.paths.rend());
  SmallCache::Counts counts;
  std::size_t offered = 0;
  for (const auto& path : paths) {
    for (int blocked = 0; blocked < 100 && !cache.find(tests::request_for(path));) {
      PlannedFile file = planned(offered < paths.size() ? paths[offered] : path);
      if (offered < paths.size() && prefetcher->offer(file)) ++offered;
      prefetcher->pump();
      // A file that has made room for others is not fetched again.
      const bool may_come =
          prefetcher->in_flight() != 0 || (offered < paths.size() && !prefetcher->is_blocked());
      blocked = may_come ? 0 : blocked + 1;
      std::this_thread::yield();
    }
    files.open(cache, path, counts);
    prefetcher->ring_watch().look({});
  }
  EXPECT_GE(counts.hits, 680);
  EXPECT_EQ(counts.wrong, 0);
  EXPECT_GE(count(Counter::prefetch_early), static_cast<std::uint64_t>(680 - resident));
  // Most of the cached files are still there.
  EXPECT_LE(prefetcher->counts().fetched, static_cast<std::uint64_t>(700 - resident + 4 * 40));
  EXPECT_EQ(tests::counters_of(cache.region()), "right");
}

TEST_F(PrefetcherTest, FullRingMakesNoRequests) {
  make(true);
  const std::size_t offered = fill();
  ASSERT_LT(offered, files.paths.size());
  // The prefetcher learns the average size of the files only when the first fetches end.
  wait_until_nothing_is_under_way();
  const std::uint64_t before = count(Counter::origin_opens);
  for (int i = 0; i < 200; ++i) {
    prefetcher->pump();
    wait_until_nothing_is_under_way();
  }
  EXPECT_TRUE(prefetcher->is_blocked());
  EXPECT_LE(count(Counter::origin_opens), before + 8);
}

// The last segment of the resident pool has at least 64 KiB left, so the pool is not marked full.
// But each file is larger.
TEST_F(PrefetcherTest, PoolWithoutRoomForTheseFilesCountsAsFull) {
  for (auto& path : files.paths) ASSERT_EQ(truncate(path.c_str(), 300'000), 0);
  make(true);
  fill();
  wait_until_nothing_is_under_way();
  const std::uint64_t before = count(Counter::origin_opens);
  for (int i = 0; i < 200; ++i) {
    prefetcher->pump();
    wait_until_nothing_is_under_way();
  }
  EXPECT_LE(count(Counter::origin_opens), before + 40);
}

TEST_F(PrefetcherTest, UnavailableMemoryIsNotRequestedForever) {
  make(true);
  // No more segments can be leased.
  ASSERT_EQ(unlink(files.cache.path().c_str()), 0);
  for (int i = 0; i < 50; ++i) offer(files.paths[i]);
  for (int i = 0; i < 200; ++i) {
    prefetcher->pump();
    wait_until_nothing_is_under_way();
  }
  EXPECT_GT(count(Counter::origin_opens), 0U);
  EXPECT_LE(count(Counter::origin_opens), 400U);
  EXPECT_EQ(prefetcher->counts().fetched, 0U);
  prefetcher->stop(1000);
  EXPECT_FALSE(prefetcher->first_unended(3)) << "one that waits for room is not under way";
}

TEST_F(PrefetcherTest, RoomIsUsedAsSoonAsItIsFree) {
  make(true);
  const std::size_t offered = fill();
  const std::uint64_t before = prefetcher->counts().fetched;
  SmallCache::Counts counts;
  for (std::size_t i = 0; i < offered; ++i) {
    if (cache.find(tests::request_for(files.paths[i]))) files.open(cache, files.paths[i], counts);
  }
  EXPECT_FALSE(cache.ahead().ring().wait_for_room(1'000'000));
  while (prefetcher->counts().fetched <= before + 20) {
    prefetcher->pump();
    std::this_thread::yield();
  }
}

// One reader has stopped reading, and the ring is full of its files.
TEST_F(PrefetcherTest, FullRingDelaysNoOtherReader) {
  make(true);
  std::size_t n = fill();
  const auto more_of = [&](std::uint32_t reader) {
    PlannedFile file = planned(files.paths[n], reader);
    const bool is_taken = prefetcher->wants_more_of(reader) && prefetcher->offer(file);
    n += is_taken ? 1 : 0;
    return is_taken;
  };
  while (prefetcher->wants_more()) ASSERT_TRUE(more_of(3));
  EXPECT_FALSE(more_of(3));
  const std::size_t first = n;
  ASSERT_TRUE(more_of(4));
  ASSERT_TRUE(more_of(4));
  EXPECT_FALSE(prefetcher->take_starved()) << "he may not have come to them";
  // A program reads the first file itself, so that this file does not block the second one.
  SmallCache::Counts counts;
  files.open(cache, files.paths[first], counts);
  prefetcher->pump();
  wait_until_nothing_is_under_way();
  EXPECT_EQ(prefetcher->first_unended(4), sequence - 1);
  EXPECT_EQ(count(Counter::prefetch_late), 1U);
  EXPECT_TRUE(prefetcher->take_starved());
  EXPECT_FALSE(prefetcher->take_starved());
  None order;
  ASSERT_GT(prefetcher->ring_watch().give_up(order, /*is_starved=*/true), 0U);
  prefetcher->take_settled();
  constexpr std::uint64_t k_patience_ns = 60'000'000'000;
  const std::uint64_t until = base::monotonic_ns() + k_patience_ns;
  while (!cache.find(tests::request_for(files.paths[first + 1]))) {
    ASSERT_LT(base::monotonic_ns(), until);
    prefetcher->pump();
    std::this_thread::yield();
  }
}

TEST_F(PrefetcherTest, WatchesFilesAgainThatAreReadAgainFromTheRing) {
  make(true);
  std::size_t offered = 0;
  SmallCache::Counts counts;
  // Offers no more files than fit.
  while (!cache.ahead().is_full()) {
    offer(files.paths[offered++]);
    wait_until_idle();
  }
  for (int i = 0; i < 30; ++i) offer(files.paths[offered++]);
  wait_until_idle();
  for (std::size_t i = 0; i < offered; ++i) files.open(cache, files.paths[i], counts);
  EXPECT_EQ(counts.hits, static_cast<int>(offered));
  settled();
  std::string in_ring;
  for (std::size_t i = offered; i-- > 0 && in_ring.empty();) {
    const cache::Pin pin = cache.find(tests::request_for(files.paths[i]));
    if (pin && cache.ahead().ring().holds(*pin)) in_ring = files.paths[i];
  }
  ASSERT_FALSE(in_ring.empty());
  offer(in_ring);
  wait_until_idle();
  EXPECT_EQ(settled(), 0U) << "before it is read";
  files.open(cache, in_ring, counts);
  EXPECT_EQ(settled(), 1U);
}

TEST_F(PrefetcherTest, AcceptsAndFetchesNothingAfterAStop) {
  make(true);
  fill();
  prefetcher->stop(1000);
  const std::uint64_t before = prefetcher->counts().fetched;
  PlannedFile file = planned(files.paths.back());
  EXPECT_FALSE(prefetcher->offer(file));
  EXPECT_EQ(file.path, files.paths.back());
  EXPECT_FALSE(prefetcher->wants_more());
  prefetcher->pump();
  EXPECT_TRUE(prefetcher->is_idle());
  EXPECT_EQ(prefetcher->counts().fetched, before);
  EXPECT_EQ(pins_of(cache.region(), cache.region().own_slot()), 0U);
}

TEST_F(PrefetcherTest, ConcurrentProgramsAndPrefetchesSeeRightBytes) {
  make(true, base::EngineKind::automatic);
  std::atomic<int> wrong{0}, next{0};
  std::vector<std::thread> programs;
  for (int p = 0; p < 3; ++p) {
    programs.emplace_back([&] {
      SmallCache::Counts counts;
      for (int i = next++; i < 2100; i = next++)
        files.open(cache, files.paths[static_cast<std::size_t>(i) % 700], counts);
      wrong += counts.wrong;
    });
  }
  None order;
  for (std::size_t i = 0; next.load() < 2100; ++i) {
    PlannedFile file = planned(files.paths[i % 700]);
    prefetcher->offer(file);
    prefetcher->set_depth(1 + i % 8);
    // In each round, prefetching has been stuck for a long time.
    prefetcher->ring_watch().look({.now_ns = 3'000'000'000 * i, .is_blocked = true, .demanded = i});
    prefetcher->ring_watch().give_up(order, /*is_starved=*/i % 64 == 0);
    prefetcher->take_settled();
    prefetcher->pump();
    std::this_thread::yield();
  }
  for (auto& program : programs) program.join();
  prefetcher->stop(10'000);
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(tests::counters_of(cache.region()), "right");
}

}  // namespace
}  // namespace cube::prefetch
