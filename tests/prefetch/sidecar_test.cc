// Leaders that start and end, some by kill -9, while other processes read through a ring that is
// much smaller than the data.
#include "prefetch/work/sidecar.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <time.h>

#include <random>
#include <thread>

#include "cache/base/unique_fd.h"
#include "cache/region/life/robust_lock.h"
#include "cache/region/posix_locks.h"
#include "prefetch/threads/background_thread.h"
#include "tests/support/child.h"
#include "tests/support/effort.h"
#include "tests/support/sanitizers.h"
#include "tests/support/small_cache.h"
#include "tests/support/survivor.h"
#include "tests/support/temp_dir.h"

namespace cube::prefetch {
namespace {

using base::Counter;
using tests::Child;
using tests::Gate;
using tests::k_mib;
using tests::SmallCache;

struct SidecarTest : ::testing::Test {
  // More files than the cache can hold.
  SmallCache files{tests::k_tsan || tests::k_asan ? 500 : 800};
  cache::FileCache& cache = *files.cache.cache;
  base::Config& config = files.cache.config;
  SmallCache::Counts counts;

  SidecarTest() {
    // Requests the ring immediately. Otherwise, on a busy machine, the readers would fill the whole
    // region before a leader makes the ring, and no segment would be left for it.
    files.list_all(/*depth=*/16);
    cache.ahead().want();
  }
  // Starts a process that leads, or waits for the lead, until it is killed.
  Child leader(Gate& ready) {
    return Child([&] {
      cache::FileCache* const own = tests::attach_cache(config, files.cache.options.job);
      CHILD_CHECK(own != nullptr);
      CHILD_CHECK(Sidecar::start(*own, config) != nullptr);
      ready.give();
      return tests::wait_for_death();
    });
  }
  std::uint64_t fetched() {
    std::uint64_t sum = 0;
    const auto place = static_cast<std::size_t>(Counter::prefetch_fetched);
    for (std::uint32_t i = 0; i < cache.region().layout().process_slots; ++i)
      sum += cache.region().process_slot(i).stats.counters[place].load();
    for (std::uint32_t i = 0; i < cache.region().layout().job_rows; ++i)
      sum += cache.region().job_row(i).finished.counters[place].load();
    return sum;
  }
  // Reads cached files in the list's order, round after round, until `more` further files are
  // fetched. Only the test's time limit bounds the loop. A reader that did not wait for the sidecar
  // would leave it almost nothing to do.
  void read_until_fetched(std::uint64_t more) {
    const std::uint64_t goal = fetched() + more;
    for (; fetched() < goal; ++next_) {
      const std::string& path = files.paths[next_ % files.paths.size()];
      if (cache.find(tests::request_for(path))) files.open(cache, path, counts);
    }
  }

 private:
  std::size_t next_ = 0;
};

TEST_F(SidecarTest, FetchesTheListRoundAfterRound) {
  Sidecar* const sidecar = Sidecar::start(cache, config);
  ASSERT_NE(sidecar, nullptr);
  tests::never_freed(sidecar);
  read_until_fetched(2 * files.paths.size());
  sidecar->stop();
  EXPECT_TRUE(wait_for_background_threads(60'000));
  const std::uint64_t then = fetched();
  EXPECT_EQ(counts.wrong, 0);
  EXPECT_GT(files.cache.count(Counter::prefetch_early), 0U);
  for (const auto& path : files.paths) files.open(cache, path, counts);
  EXPECT_EQ(counts.wrong, 0);
  EXPECT_EQ(fetched(), then) << "it has ended";
  EXPECT_EQ(tests::counters_of(cache.region()), "right");
}

TEST_F(SidecarTest, NextLeaderTakesOver) {
  Gate ready;
  Child first = leader(ready);
  ASSERT_TRUE(ready.take());
  read_until_fetched(50);
  Child second = leader(ready);
  ASSERT_TRUE(ready.take());
  first.kill();
  read_until_fetched(files.paths.size());
  EXPECT_EQ(counts.wrong, 0);
}

// The sidecar is stopped while it begins, works, waits for the lead, or has nothing to do.
TEST_F(SidecarTest, StopsAtAnyMoment) {
  std::minstd_rand random(7);
  for (int i = 0; i < 30; ++i) {
    Sidecar* const sidecar = Sidecar::start(cache, config);
    ASSERT_NE(sidecar, nullptr);
    tests::never_freed(sidecar);
    timespec pause{0, static_cast<long>(random() % 8'000'000)};
    nanosleep(&pause, nullptr);  // chooses the moment of the stop; waits for nothing
    for (int n = 0; n < 20; ++n)
      files.open(cache, files.paths[random() % files.paths.size()], counts);
    sidecar->stop();
    EXPECT_TRUE(wait_for_background_threads(60'000));
  }
  EXPECT_EQ(counts.wrong, 0);
  EXPECT_EQ(tests::counters_of(cache.region()), "right");
  cache::LeadClaim claim = cache.ahead().lead_claim();
  EXPECT_TRUE(claim.look(base::monotonic_ns())) << "nobody leads";
}

TEST_F(SidecarTest, LeadersKilledAtRandomMomentsLeaveNoWrongByte) {
  const int kills = tests::k_tsan || tests::k_asan ? 8 : tests::rounds(12, 25);
  std::minstd_rand random(4711);
  std::atomic<bool>* const stop = static_cast<std::atomic<bool>*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<Child> readers;
  for (int r = 0; r < 2; ++r) {
    readers.emplace_back([&, r] {
      cache::FileCache* const own = tests::attach_cache(config, files.cache.options.job);
      CHILD_CHECK(own != nullptr);
      SmallCache::Counts seen;
      // Some files stay open while the ring continues.
      std::vector<std::pair<std::size_t, cache::Pin>> kept;
      for (std::size_t i = static_cast<std::size_t>(r); !stop->load(); i += 2) {
        const std::size_t n = i % files.paths.size();
        // A file that was missed recently is not prefetched, so some files can be missing.
        if (n % 4 > 1 && !own->find(tests::request_for(files.paths[n]))) continue;
        files.open(*own, files.paths[n], seen);
        if (i % 7 != 0) continue;
        if (cache::Pin pin = own->find(tests::request_for(files.paths[n])))
          kept.emplace_back(n, std::move(pin));
        if (kept.size() < 5) continue;
        CHILD_CHECK(SmallCache::is_right(files.paths[kept.front().first],
                                         tests::bytes_of(*kept.front().second)));
        kept.erase(kept.begin());
      }
      CHILD_CHECK(seen.wrong == 0);
      return 0;
    });
  }
  Gate ready;
  for (int k = 0; k < kills; ++k) {
    Child one = leader(ready);
    ASSERT_TRUE(ready.take());
    timespec pause{0, static_cast<long>(random() % 30'000'000)};
    nanosleep(&pause, nullptr);  // the moment of the kill, not a wait for anything
    one.kill();
    for (int n = 0; n < 20; ++n)
      files.open(cache, files.paths[random() % files.paths.size()], counts);
  }
  // The ring continues with the next leader, round after round.
  Child last = leader(ready);
  ASSERT_TRUE(ready.take());
  read_until_fetched(files.paths.size() / 20);
  stop->store(true);
  for (auto& reader : readers) EXPECT_EQ(reader.wait(), 0) << "a reader saw wrong bytes";
  last.kill();
  EXPECT_EQ(counts.wrong, 0);

  tests::KillCounts after;
  tests::Survivor survivor(cache.region());
  survivor.check_tables(after);
  for (const auto& path : files.paths) {
    survivor.check_turn(path, after);
    survivor.check_record(path, tests::content_of(path, 0, SmallCache::k_bytes), after);
  }
  EXPECT_TRUE(after.is_clean());
  // A process that is killed between two counters leaves the sum too high, at most by the amount
  // that was in flight.
  std::uint64_t records = 0, bytes = 0;
  for (std::uint32_t i = 0; i < cache.region().layout().segment_count; ++i) {
    records += cache.region().segment_row(i).records.load();
    bytes += cache.region().segment_row(i).used_bytes.load();
  }
  const cache::RegionHeader& header = cache.region().header();
  const std::uint64_t under_way = 16 * static_cast<std::uint64_t>(kills + 1);
  EXPECT_GE(header.records.load(), records);
  EXPECT_LE(header.records.load(), records + under_way);
  EXPECT_GE(header.used_bytes.load(), bytes);
  EXPECT_LE(header.used_bytes.load(), bytes + under_way * 2 * SmallCache::k_bytes);
  munmap(stop, 4096);
}

// The sidecar hangs, as it does with a hanging origin. If its socket remained, a client of
// announcements would connect and wait forever.
TEST(SidecarThatHangs, LeavesNoSocketWhenItIsStopped) {
  SmallCache files(1);
  cache::FileCache& cache = *files.cache.cache;
  cache.ahead().want();
  {
    // When the sidecar listens, it waits two seconds for this lock.
    pthread_mutex_t& lifecycle = cache.region().header().lifecycle;
    const cache::RobustLock lock(&lifecycle);
    ASSERT_TRUE(lock);
    Sidecar* const sidecar = Sidecar::start(cache, files.cache.config);
    ASSERT_NE(sidecar, nullptr);
    tests::never_freed(sidecar);
    const int& lock_word = lifecycle.__data.__lock;
    const auto load = [&] { return __atomic_load_n(&lock_word, __ATOMIC_RELAXED); };
    while ((load() & FUTEX_WAITERS) == 0) std::this_thread::yield();
    ASSERT_TRUE(tests::exists(cache.ahead().socket_path()));
    sidecar->stop(0);
    EXPECT_FALSE(tests::exists(cache.ahead().socket_path()));
  }
  EXPECT_TRUE(wait_for_background_threads(60'000));
}

// unshare() and setns() require a process with one thread. So a wait for the library's threads must
// not miss a thread that has just been started.
TEST(BackgroundThread, WaitIncludesAThreadThatHasJustStarted) {
  static std::atomic<int> ended;
  for (int i = 0; i < 200; ++i) {
    ended = 0;
    const auto body = [](void*) { ended.fetch_add(1); };
    ASSERT_EQ(start_background_thread(body, nullptr, 128 << 10), 0);
    ASSERT_TRUE(wait_for_background_threads(60'000));
    ASSERT_EQ(ended.load(), 1) << "in round " << i;
  }
}

// On a busy machine, a thread may have to wait for a CPU.
TEST(BackgroundThread, ThreadThatNeedsOnlyAProcessorIsWaitedForLonger) {
  static std::atomic<bool> has_ended{false};
  const auto body = [](void*) {
    for (const std::uint64_t until = base::monotonic_ns() + 200 * base::k_ns_per_ms;
         base::monotonic_ns() < until;) {
    }
    has_ended = true;
  };
  ASSERT_EQ(start_background_thread(body, nullptr, 128 << 10), 0);
  EXPECT_TRUE(wait_for_background_threads(20));
  EXPECT_TRUE(has_ended);
}

// The kernel keeps POSIX locks by fd table. So a thread with its own table can close its fds of a
// locked file, and the program keeps its lock.
TEST(BackgroundThread, ThreadWithItsOwnFdsClosesThoseOfALockedFile) {
  static std::string path;
  static std::atomic<int> closed;
  const tests::TempDir dir;
  path = dir.write("f", "bytes");
  const base::UniqueFd locked(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct ::flock lock {};
  lock.l_type = F_RDLCK;
  ASSERT_EQ(
      cache::PosixLocks::take(locked.get(), [&] { return fcntl(locked.get(), F_SETLK, &lock); }),
      0);
  const auto body = [](void*) {
    if (!take_private_fd_table()) return;
    const auto own = static_cast<int>(base::sys::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    cache::PosixLocks::close(own);
    closed = static_cast<int>(base::sys::fcntl(own, F_GETFD));
  };
  ASSERT_EQ(start_background_thread(body, nullptr, 128 << 10), 0);
  ASSERT_TRUE(wait_for_background_threads(60'000));
  EXPECT_EQ(closed, -EBADF);
  EXPECT_EQ(cache::PosixLocks::kept_mark(locked.get()), 0U);
}

TEST(BackgroundThread, ThreadThatDoesNotEndIsReported) {
  // The gate is never closed. Only the kernel reports that the thread has ended, so ThreadSanitizer
  // does not know it.
  static Gate* const gate = new Gate;
  ASSERT_EQ(start_background_thread([](void*) { gate->take(); }, nullptr, 128 << 10), 0);
  const std::uint64_t began = base::monotonic_ns();
  EXPECT_FALSE(wait_for_background_threads(20));
  EXPECT_LT(base::monotonic_ns() - began, 60'000 * base::k_ns_per_ms)
      << "it waits for something else than a processor";
  gate->give();
  EXPECT_TRUE(wait_for_background_threads(60'000));
  EXPECT_EQ(tests::run_in_child([] {
              forget_background_threads();
              return wait_for_background_threads(0) ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace cube::prefetch
