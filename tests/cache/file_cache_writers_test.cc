// Files are not served while they are open for writing.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "cache/region/life/process_reaper.h"
#include "cache/region/life/process_slots.h"
#include "cache/region/life/robust_lock.h"
#include "cache/region/writers.h"
#include "tests/cache/writers_fixture.h"
#include "tests/support/sanitizers.h"

namespace cube::cache {
namespace {

using base::Counter;
using tests::request_for;

TEST_F(WritersTest, OpenWriterKeepsOnlyItsFileOutOfTheCache) {
  const std::string written = dir.write("written", "old");
  const FileStat stat = stat_of(written);
  cache->changes().writing_begins(written, stat);
  EXPECT_EQ(open(written), "(no pin)");
  // Some of these files share a stripe with the written file.
  for (int i = 0; i < 2000; ++i) EXPECT_EQ(open(dir.write(std::to_string(i), "x")), "x") << i;
  cache->changes().writing_begins(written, stat);
  EXPECT_EQ(open(written), "(no pin)");
  cache->changes().writing_ends(stat);
  EXPECT_EQ(open(written), "(no pin)") << "one of two writers has ended";
  cache->changes().writing_ends(stat);
  EXPECT_EQ(open(written), "old");
}

TEST_F(WritersTest, FileIsNotCachedWhileItIsOpenForWriting) {
  const std::string path = dir.write("f", "old");
  EXPECT_EQ(open(path), "old");
  const FileStat stat = stat_of(path);
  cache->changes().writing_begins(path, stat);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(open(path), "(no pin)");
  EXPECT_EQ(cache.count(Counter::bypassed_busy), 3U);
  cache->changes().writing_begins(path, stat);
  cache->changes().writing_ends(stat);
  EXPECT_EQ(open(path), "(no pin)") << "one writer is left";
  tests::TempDir::write_file(path, "new");
  cache->changes().writing_ends(stat);
  EXPECT_EQ(open(path), "new");
}

// The writer bypasses the library. Only its first store to its mapping changes the file's times.
TEST_F(WritersTest, FileWrittenWithoutTheLibraryIsNotCached) {
  const std::string path = dir.write("f", "old"), other = dir.write("g", "other");
  auto writer = base::open_fd(path.c_str(), O_RDWR);
  ASSERT_TRUE(writer);
  EXPECT_EQ(open(path), "(no pin)");
  EXPECT_EQ(open(other), "other");
  void* const mapped = mmap(nullptr, 3, PROT_READ | PROT_WRITE, MAP_SHARED, writer->get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  writer->reset();
  EXPECT_EQ(open(path), "(no pin)") << "the mapping alone is left";
  std::memcpy(mapped, "new", 3);
  munmap(mapped, 3);
  EXPECT_EQ(open(path), "new");
  EXPECT_EQ(cache.count(Counter::bypassed_busy), 2U);
}

TEST_F(WritersTest, FileIsCachedIfItsWritersCannotBeQueried) {
  if (geteuid() != 0)
    GTEST_SKIP() << "only root can give a file away, and then refuse itself the right to ask";
  const std::string path = dir.write("f", "old");
  ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
  const auto writer = base::open_fd(path.c_str(), O_RDWR);
  ASSERT_TRUE(writer);
  EXPECT_EQ(open(path), "(no pin)") << "CAP_LEASE permits the question";
  ASSERT_EQ(setfsuid(12345), 0);
  EXPECT_EQ(open(path), "(no pin)") << "the owner may ask";
  setfsuid(0);
  tests::Child child([&] {
    constexpr std::uint32_t k_lease = 28;
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct rights[2];
    CHILD_CHECK(syscall(SYS_capget, &header, rights) == 0);
    rights[0].effective &= ~(1U << k_lease);
    CHILD_CHECK(syscall(SYS_capset, &header, rights) == 0);
    const auto reader = base::open_fd(path.c_str(), O_RDONLY);
    return may_be_written(cache->region(), stat_of(path), reader->get()) ? 20 : 10;
  });
  EXPECT_EQ(child.wait(), 10);
}

// The writer is stopped at each step, the file is fetched, and the writer continues.
TEST_F(WritersTest, RecordFetchedAtAnyStepOfWritingBeginsIsNotServedLater) {
  if (tests::k_tsan || tests::k_asan) GTEST_SKIP() << "too slow in single steps";
  tests::Tracee child([&] {
    FileCache* const mine = tests::attach_cache(cache.config, cache.options.job);
    CHILD_CHECK(mine != nullptr);
    for (int i = 0;; ++i) {
      const std::string path = dir / std::to_string(i);
      const FileStat stat = stat_of(path);
      raise(SIGSTOP);
      mine->changes().writing_begins(path, stat);
      raise(SIGSTOP);
      mine->changes().writing_ends(stat);
    }
  });
  int cached = 0;
  bool is_over = false;
  for (int i = 0; !is_over; ++i) {
    const std::string path = dir.write(std::to_string(i), "old");
    ASSERT_TRUE(child.to_stop());
    const int steps = 29 * i;
    is_over = child.step_on(steps);
    cached += open(path) == "old" ? 1 : 0;
    if (!is_over) {
      ASSERT_TRUE(child.to_stop());
    }
    ASSERT_EQ(open(path), "(no pin)") << "fetched after " << steps << " instructions";
  }
  EXPECT_TRUE(child.is_alive());
  EXPECT_GT(cached, 1) << "the first steps are too early to keep it out";
  child.kill();
}

TEST_F(WritersTest, NoWriterIsForgottenIfAStripeHasMany) {
  // There are more writers than a stripe has places.
  std::vector<std::string> paths;
  std::vector<FileStat> stats;
  for (int i = 0; paths.size() < WriterStripe::k_places + 3; ++i) {
    const std::string path = dir.write(std::to_string(i), "x");
    const FileStat stat = stat_of(path);
    if (!paths.empty() &&
        &writer_stripe_of(cache->region(), stat) != &writer_stripe_of(cache->region(), stats[0]))
      continue;
    paths.push_back(path);
    stats.push_back(stat);
  }
  for (std::size_t i = 0; i < paths.size(); ++i) {
    cache->changes().writing_begins(paths[i], stats[i]);
    for (std::size_t j = 0; j <= i; ++j) EXPECT_EQ(open(paths[j]), "(no pin)") << j << " of " << i;
  }
  // The first writers have places, and the last writers have none. No matter which writer ends, the
  // others still count as writers.
  for (const std::size_t i : {9UL, 0UL, 8UL, 3UL, 7UL, 1UL}) {
    cache->changes().writing_ends(stats[i]);
    stats[i].inode = 0;
    for (std::size_t j = 0; j < paths.size(); ++j) {
      if (stats[j].inode == 0) continue;
      EXPECT_EQ(open(paths[j]), "(no pin)") << j << " after " << i;
    }
  }
  for (const FileStat& stat : stats) {
    if (stat.inode != 0) cache->changes().writing_ends(stat);
  }
  for (const std::string& path : paths) EXPECT_EQ(open(path), "x");
}

TEST_F(WritersTest, WritersThatCloseNothingKeepNoOtherFileOutOfTheCache) {
  for (int i = 0; i < 40; ++i) {
    const std::string path = dir.write("log" + std::to_string(i), "x");
    cache->changes().writing_begins(path, stat_of(path));
  }
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(open(dir.write(std::to_string(i), "x")), "x") << i;
}

TEST_F(WritersTest, ConcurrentWritersLeaveNothingBehind) {
  std::vector<FileStat> stats;
  for (int i = 0; i < 4; ++i) stats.push_back(stat_of(dir.write(std::to_string(i), "x")));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20'000; ++i) {
        const FileStat& stat = stats[static_cast<std::size_t>(i + t) % stats.size()];
        writing_begins(cache->region(), stat);
        if (!may_be_written(cache->region(), stat)) ADD_FAILURE() << "not seen";
        writing_ends(cache->region(), stat);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const FileStat& stat : stats) {
    const WriterStripe& stripe = writer_stripe_of(cache->region(), stat);
    EXPECT_FALSE(may_be_written(cache->region(), stat));
    EXPECT_EQ(stripe.others.load(), 0U);
  }
  for (std::uint32_t i = 0; i < k_own_writers; ++i)
    EXPECT_EQ(cache->region().own_writers(cache->region().own_slot())[i].load() & 0xffff, 0U);
}

TEST_F(WritersTest, AThousandChildrenAreCountedOnce) {
  const std::string path = dir.write("f", "x");
  const FileStat stat = stat_of(path);
  for (int i = 0; i < 1000; ++i) cache->changes().child_writes(path, stat);
  for (const auto& place : writer_stripe_of(cache->region(), stat).writers)
    EXPECT_LE(place.load() & 0x7fff, 1U);
  EXPECT_EQ(open(path), "(no pin)");
}

TEST_F(WritersTest, AsManyWritersAsAPlaceCanCountAreNeverForgotten) {
  const std::string path = dir.write("f", "x");
  const FileStat stat = stat_of(path);
  for (int i = 0; i < 0x8002; ++i) writing_begins(cache->region(), stat);
  EXPECT_TRUE(may_be_written(cache->region(), stat));
  for (int i = 0; i < 0x8001; ++i) writing_ends(cache->region(), stat);
  EXPECT_TRUE(may_be_written(cache->region(), stat));
}

TEST_F(WritersTest, OtherProcessesSeeTheWriter) {
  const std::string path = dir.write("f", "old");
  const FileStat stat = stat_of(path);
  EXPECT_EQ(open(path), "old");
  cache->changes().writing_begins(path, stat);
  const int status = tests::run_in_child([&] {
    FileCache* const mine = tests::attach_cache(cache.config, cache.options.job);
    CHILD_CHECK(mine != nullptr);
    CHILD_CHECK(bytes(mine->open(request_for(path))) == "(no pin)");
    return 0;
  });
  EXPECT_EQ(status, 0);
}

// The count of a dead writer must be undone. Otherwise, its file and all other files of its stripe
// would never be cached again.
TEST_F(WritersTest, AKilledWriterDoesNotKeepItsFileOutOfTheCache) {
  const std::string path = dir.write("f", "old");
  const FileStat stat = stat_of(path);
  const int status = tests::run_in_child([&] {
    FileCache* const mine = tests::attach_cache(cache.config, cache.options.job);
    CHILD_CHECK(mine != nullptr);
    mine->changes().writing_begins(path, stat);
    raise(SIGKILL);
    return 0;
  });
  ASSERT_EQ(status, -SIGKILL);
  {
    const RobustLock lock(&cache->region().header().lifecycle);
    reap_dead_processes(cache->region(), cache->region().own_slot());
  }
  EXPECT_EQ(open(path), "old");
}

TEST_F(WritersTest, ReadersNeverSeeLessThanTheLastFinishedWrite) {
  const std::string path = dir.write("f", "00000000");
  std::atomic<int> written{0};
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int i = 1; i <= 300; ++i) {
      const FileStat stat = stat_of(path);
      cache->changes().writing_begins(path, stat);
      char text[16];
      std::snprintf(text, sizeof text, "%08d", i);
      tests::TempDir::write_file(path, text);
      cache->changes().writing_ends(stat);
      written.store(i);
    }
    stop = true;
  });
  int served = 0;
  while (!stop) {
    const int before = written.load();
    const OpenOutcome outcome = cache->open(request_for(path));
    if (outcome.kernel_fd >= 0) close(outcome.kernel_fd);
    if (!outcome.pin) continue;
    ++served;
    ASSERT_GE(std::stoi(std::string(tests::bytes_of(*outcome.pin))), before);
  }
  writer.join();
  EXPECT_EQ(open(path), "00000300");
  std::printf("%d opens were served beside 300 writes\n", served);
}

}  // namespace
}  // namespace cube::cache
