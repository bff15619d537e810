// Which process writes to the disk when the writing process is killed.
#include "prefetch/work/disk_flusher.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cache/base/clock.h"
#include "cache/base/process/signal_frame.h"
#include "cache/region/life/robust_lock.h"
#include "tests/support/child.h"
#include "tests/support/ring_files.h"
#include "tests/support/survivor.h"
#include "tests/support/temp_dir.h"

namespace cube::prefetch {
namespace {

using tests::Child;
using tests::Gate;
using tests::k_mib;

constexpr std::uint64_t k_patience_ns = 60'000'000'000;

// True if another thread of this process sleeps in the kernel until it is woken.
bool has_waiting_thread() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    if (entry.path().filename() == std::to_string(gettid())) continue;
    int call = -1;
    std::ifstream(entry.path() / "syscall") >> call;
    if (call == SYS_futex) return true;
  }
  return false;
}

struct DiskFlusherTest : testing::Test {
  tests::TempDir origin, disk;
  tests::RegionName region{16 * k_mib};
  base::Config config = tests::config_for(region.options);
  cache::FileCache* cache = nullptr;

  DiskFlusherTest() {
    base::remember_first_thread();
    config.disk_dir = disk.path();
    config.disk = {.is_percent = false, .value = 64 * k_mib};
    cache = tests::attach_cache(config, region.options.job);
    if (cache == nullptr || cache->tiers().is_empty()) _exit(98);
  }
  ~DiskFlusherTest() override { cache->detach(); }

  // A process that holds the writer's lock and reports that it is alive.
  Child writer(Gate& ready) {
    return Child([&] {
      cache::FileCache* const own = tests::attach_cache(config, region.options.job);
      CHILD_CHECK(own != nullptr);
      const cache::RobustLock lock(&own->region().header().disk_writer, 0);
      CHILD_CHECK(lock);
      own->region().header().disk_alive_ns.store(base::coarse_monotonic_ns());
      ready.give();
      return tests::wait_for_death();
    });
  }
  void open_a_file(const std::string& name = "f", std::size_t bytes = 5000) {
    const std::string path = origin.write(name, std::string(bytes, 'x'));
    const timespec old[2] = {{1'600'000'000, 0}, {1'600'000'000, 0}};
    utimensat(AT_FDCWD, path.c_str(), old, 0);
    ASSERT_TRUE(cache->open(tests::request_for(path)).pin);
  }
};

TEST_F(DiskFlusherTest, IsWantedAsSoonAsTheWriterIsKilled) {
  Gate ready;
  Child child = writer(ready);
  ASSERT_TRUE(ready.take());
  EXPECT_FALSE(DiskFlusher::is_wanted(*cache));
  child.kill();
  // The flusher checks for the lock ten times a second.
  const std::uint64_t until = base::monotonic_ns() + k_patience_ns;
  bool is_wanted = false;
  cache->region().header().disk_alive_ns.store(until);
  while (!is_wanted && base::monotonic_ns() < until) is_wanted = DiskFlusher::is_wanted(*cache);
  EXPECT_TRUE(is_wanted);
}

// A process that leases the next segment finds its memory cleared.
TEST_F(DiskFlusherTest, MakesTheNextSegmentReady) {
  const auto with_memory = [&] {
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < cache->region().layout().segment_count; ++i)
      count += cache->region().segment_row(i).has_memory.load(std::memory_order_acquire);
    return count;
  };
  const std::uint64_t until = base::monotonic_ns() + k_patience_ns;
  const auto become = [&](std::uint32_t count) {
    while (with_memory() < count && base::monotonic_ns() < until) {
    }
    return with_memory() == count;
  };
  ASSERT_NO_FATAL_FAILURE(open_a_file("small", 5000));
  ASSERT_EQ(with_memory(), 1);
  DiskFlusher* const flusher = DiskFlusher::start(*cache);
  ASSERT_NE(flusher, nullptr);
  EXPECT_TRUE(become(2));
  // The first segment keeps room for smaller files.
  const std::uint64_t bytes = cache->region().layout().segment_bytes / 4 * 3;
  ASSERT_NO_FATAL_FAILURE(open_a_file("one", bytes));
  ASSERT_NO_FATAL_FAILURE(open_a_file("two", bytes));
  EXPECT_TRUE(become(3));
  flusher->ask_to_stop(until);
  flusher->wait(until);
}

TEST_F(DiskFlusherTest, WritesRecordsOfAKilledWriterAtTheEnd) {
  Gate ready;
  Child child = writer(ready);
  ASSERT_TRUE(ready.take());
  open_a_file();
  DiskFlusher* const flusher = DiskFlusher::start(*cache);
  ASSERT_NE(flusher, nullptr);
  const std::uint64_t until = base::monotonic_ns() + k_patience_ns;
  while (!has_waiting_thread() && base::monotonic_ns() < until) {
  }
  child.kill();
  flusher->ask_to_stop(until);
  flusher->wait(until);
  EXPECT_EQ((*cache->tiers().begin())->status().entries, 1);
}

}  // namespace
}  // namespace cube::prefetch
