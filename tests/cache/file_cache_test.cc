// FileCache: the result of an open, and the counter that records it.
#include "cache/file_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "cache/region/segments.h"
#include "tests/support/child.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

using base::Counter;
using tests::k_mib;
using tests::request_for;
using tests::TestCache;

struct FileCacheTest : testing::Test {
  tests::TempDir dir;
  TestCache cache;

  OpenOutcome open(const std::string& path, int flags = O_RDONLY) const {
    return cache->open(request_for(path, flags));
  }
  // Opens, expects a kernel fd, and returns what it reads.
  std::string read_past_the_cache(const std::string& path) const {
    const OpenOutcome outcome = open(path);
    EXPECT_FALSE(outcome.pin);
    EXPECT_EQ(outcome.error, 0);
    const base::UniqueFd fd(outcome.kernel_fd);
    std::string text(1 << 20, '\0');
    const ssize_t n = read(fd.get(), text.data(), text.size());
    text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return text;
  }
};

TEST_F(FileCacheTest, FirstOpenIsAMissAndTheNextAreHits) {
  const std::string path = dir.write("f", "hello");
  for (int i = 0; i < 3; ++i) {
    const OpenOutcome outcome = open(path);
    ASSERT_TRUE(outcome.pin);
    EXPECT_EQ(outcome.kernel_fd, -1);
    EXPECT_EQ(outcome.error, 0);
    EXPECT_EQ(tests::bytes_of(*outcome.pin), "hello");
    EXPECT_TRUE(tests::is_sound(cache->region(), *outcome.pin));
    struct stat kernel {
    }, ours{};
    ASSERT_EQ(stat(path.c_str(), &kernel), 0);
    outcome.pin->stat.copy_to(ours);
    EXPECT_EQ(ours.st_ino, kernel.st_ino);
    EXPECT_EQ(ours.st_size, kernel.st_size);
  }
  EXPECT_EQ(cache.count(Counter::misses), 1U);
  EXPECT_EQ(cache.count(Counter::hits_ram), 2U);
  EXPECT_EQ(cache.count(Counter::origin_opens), 1U);
  EXPECT_EQ(cache.count(Counter::origin_reads), 1U);
  EXPECT_EQ(cache.count(Counter::origin_bytes), 5U);
}

TEST_F(FileCacheTest, ForkedChildForgetsTheFlightsOfItsParent) {
  SingleFlight flights(cache->region());
  SingleFlight::Ticket ticket;
  ASSERT_EQ(flights.begin(42, ticket), SingleFlight::Outcome::mine);
  // The child has no region any more.
  EXPECT_EQ(tests::run_in_child([&] {
              cache->abandon();
              ticket = {};
              return 0;
            }),
            0);
  EXPECT_TRUE(ticket.hold().is_held());
}

TEST_F(FileCacheTest, NonBlockingOpenDoesNotWaitForAFlight) {
  const std::string path = dir.write("f", "hello");
  const std::uint64_t hash = base::hash_path(path);
  SingleFlight flights(cache->region());
  SingleFlight::Ticket held;
  ASSERT_EQ(flights.begin(hash, held), SingleFlight::Outcome::mine);
  const OpenOutcome outcome = open(path, O_RDONLY | O_NONBLOCK);
  EXPECT_GE(outcome.kernel_fd, 0);
  const base::UniqueFd fd(outcome.kernel_fd);
  const FlightSlot& slot =
      cache->region().flight_slot(static_cast<std::uint32_t>(hash % k_flight_slots));
  EXPECT_EQ(slot.waiting.load(), 0U) << "nobody has waited";
  held = {};
  EXPECT_TRUE(open(path, O_RDONLY | O_NONBLOCK).pin);
}

TEST_F(FileCacheTest, HitMakesNoCallAtTheOrigin) {
  const std::string path = dir.write("f", "hello");
  ASSERT_TRUE(open(path).pin);
  unlink(path.c_str());  // behind the shim's back
  const OpenOutcome outcome = open(path);
  ASSERT_TRUE(outcome.pin);
  EXPECT_EQ(tests::bytes_of(*outcome.pin), "hello");
}

TEST_F(FileCacheTest, EmptyAndLargeFilesAreServed) {
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{40'000}, std::size_t{3 * k_mib}}) {
    const std::string content = tests::content_of("x", size, size);
    const std::string path = dir.write(std::to_string(size), content);
    for (int i = 0; i < 2; ++i) {
      const OpenOutcome outcome = open(path);
      ASSERT_TRUE(outcome.pin) << size;
      EXPECT_TRUE(tests::bytes_of(*outcome.pin) == content);
    }
  }
}

TEST_F(FileCacheTest, FileAboveTheLimitBypassesTheCache) {
  TestCache small(16 * k_mib, [](base::Config& config) {
    config.max_file = 1000;
    config.block = 0;
  });
  const std::string at = dir.write("at", std::string(1000, 'x')),
                    above = dir.write("above", std::string(1001, 'x'));
  EXPECT_TRUE(small->open(request_for(at)).pin);
  const OpenOutcome outcome = small->open(request_for(above));
  EXPECT_FALSE(outcome.pin);
  EXPECT_GE(outcome.kernel_fd, 0);
  close(outcome.kernel_fd);
  EXPECT_EQ(small.count(Counter::bypassed_size), 1U);
  EXPECT_EQ(small.count(Counter::origin_bytes), 1000U);
}

TEST_F(FileCacheTest, ADirectoryIsAKernelFd) {
  const OpenOutcome outcome = open(dir.path());
  EXPECT_FALSE(outcome.pin);
  EXPECT_TRUE(outcome.is_directory);
  EXPECT_GE(outcome.kernel_fd, 0);
  close(outcome.kernel_fd);
  EXPECT_EQ(cache.count(Counter::bypassed_kind), 1U);
}

TEST_F(FileCacheTest, ReadsSomeNamesPastTheCacheIfAFileHasVeryMany) {
  const std::string path = dir.write("f", "hello");
  constexpr auto k_names = static_cast<int>(Index::k_most_of_one) + 10;
  for (int i = 0; i < k_names; ++i) {
    const std::string name = dir / ("name" + std::to_string(i));
    ASSERT_EQ(link(path.c_str(), name.c_str()), 0);
    if (i < static_cast<int>(Index::k_most_of_one)) {
      EXPECT_TRUE(open(name).pin);
    } else {
      EXPECT_EQ(read_past_the_cache(name), "hello");
    }
  }
  EXPECT_EQ(cache.count(Counter::bypassed_names), 10U);
  EXPECT_EQ(cache.count(Counter::origin_bytes), std::uint64_t{5} * Index::k_most_of_one)
      << "no name is read in vain";
  EXPECT_TRUE(open(dir.write("another", "file")).pin);
}

TEST_F(FileCacheTest, ADeviceIsAKernelFd) {
  const OpenOutcome outcome = open("/dev/null");
  EXPECT_FALSE(outcome.pin);
  EXPECT_FALSE(outcome.is_directory);
  EXPECT_GE(outcome.kernel_fd, 0);
  close(outcome.kernel_fd);
  EXPECT_EQ(cache.count(Counter::bypassed_kind), 1U);
}

TEST_F(FileCacheTest, PassesTheProgramsFlagsToTheKernel) {
  const OpenOutcome outcome = open(dir.path(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  EXPECT_EQ(fcntl(outcome.kernel_fd, F_GETFD), FD_CLOEXEC);
  close(outcome.kernel_fd);
  EXPECT_EQ(open(dir.write("f", "x"), O_RDONLY | O_DIRECTORY).error, ENOTDIR);
  ASSERT_EQ(symlink("f", (dir / "link").c_str()), 0);
  EXPECT_EQ(open(dir / "link", O_RDONLY | O_NOFOLLOW).error, ELOOP);
}

TEST_F(FileCacheTest, MissingFileFailsWithTheKernelsError) {
  const OpenOutcome outcome = open(dir / "none");
  EXPECT_FALSE(outcome.pin);
  EXPECT_EQ(outcome.kernel_fd, -1);
  EXPECT_EQ(outcome.error, ENOENT);
  EXPECT_EQ(cache.count(Counter::bypassed_error), 1U);
  dir.write("none", "now");
  EXPECT_TRUE(open(dir / "none").pin) << "absence is not remembered";
}

TEST_F(FileCacheTest, AnUnreadableFileIsEacces) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to give up";
  const std::string path = dir.write("f", "secret");
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  ASSERT_EQ(chmod(dir.path().c_str(), 0755), 0);
  const int status = tests::run_in_child([&] {
    CHILD_CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    tests::RegionName name;
    FileCache* const mine = tests::attach_cache(tests::config_for(name.options), name.options.job);
    CHILD_CHECK(mine != nullptr);
    const OpenOutcome outcome = mine->open(request_for(path));
    CHILD_CHECK(!outcome.pin && outcome.kernel_fd == -1 && outcome.error == EACCES);
    mine->detach();
    unlink(name.path().c_str());
    return 0;
  });
  EXPECT_EQ(status, 0);
}

TEST_F(FileCacheTest, FullRegionLeavesFilesToTheKernel) {
  std::vector<std::string> paths;
  for (int i = 0; i < 30; ++i)
    paths.push_back(dir.write(std::to_string(i),
                              tests::content_of("x", static_cast<std::uint64_t>(i), 900'000)));
  int hits = 0, passed = 0;
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const OpenOutcome outcome = open(paths[i]);
      ASSERT_EQ(outcome.error, 0);
      if (outcome.pin) {
        ASSERT_TRUE(tests::bytes_of(*outcome.pin) == tests::content_of("x", i, 900'000));
        ++hits;
      } else {
        ASSERT_GE(outcome.kernel_fd, 0);
        close(outcome.kernel_fd);
        ++passed;
      }
    }
  }
  EXPECT_GT(hits, 20);
  EXPECT_GT(passed, 20);
  EXPECT_EQ(cache.count(Counter::bypassed_full), static_cast<std::uint64_t>(passed));
}

// Every open must ask the index for room before it reads all bytes from the origin.
TEST_F(FileCacheTest, FullIndexDoesNotCauseReadsOfWholeFiles) {
  Region& region = cache->region();
  for (std::uint32_t i = 0; i < region.layout().segment_count; ++i) {
    if (SegmentWord::of_word(region.segment_row(i).word.load()).state != SegmentState::free)
      continue;
    region.segment_row(i).word.store(SegmentWord{SegmentState::sealed, k_no_owner, 1}.as_word());
    if (i > 0) break;
  }
  // Every slot names segment 0 or the one that has just been sealed, so it is alive, but belongs to
  // no path that this test opens.
  const RecordPlace place{0, SegmentWord::of_word(region.segment_row(0).word.load()).generation, 0};
  for (std::uint32_t t = 1; t < k_index_tables; ++t) ASSERT_TRUE(region.add_index_table(t));
  tests::for_each_index_slot(region, [&](auto& slot) {
    slot.store((std::uint64_t{0xabcd} << 48) | (std::uint64_t{place.generation} << 36) |
               (std::uint64_t{place.segment} << 18) | 16000);
  });
  const std::string path = dir.write("f", std::string(100'000, 'x'));
  for (int i = 0; i < 20; ++i) {
    const OpenOutcome outcome = open(path);
    ASSERT_GE(outcome.kernel_fd, 0);
    close(outcome.kernel_fd);
  }
  EXPECT_LE(cache.count(Counter::origin_bytes), 500'000U);
}

TEST_F(FileCacheTest, ConstantlyChangingFileIsNeverServedWrong) {
  const std::string path = dir / "f";
  std::atomic<bool> stop{false};
  std::thread changer([&] {
    // Every version of the file repeats one letter and is 1 to 5 pages long.
    for (int i = 0; i < 3000; ++i) {
      const std::string content(static_cast<std::size_t>(i % 5 + 1) * 4096,
                                static_cast<char>('a' + i % 26));
      const std::string other = dir / "new";
      tests::TempDir::write_file(other, content);
      if (i % 3 == 0) unlink(path.c_str());
      rename(other.c_str(), path.c_str());
      cache->changes().content_changed(path, nullptr);
    }
    stop = true;
  });
  int served = 0, absent = 0, passed = 0;
  while (!stop) {
    const OpenOutcome outcome = open(path);
    if (outcome.pin) {
      ++served;
      const std::string_view bytes = tests::bytes_of(*outcome.pin);
      ASSERT_EQ(bytes.size() % 4096, 0U);
      ASSERT_EQ(bytes.find_first_not_of(bytes[0]), std::string_view::npos)
          << "two states of the file in one record";
      ASSERT_TRUE(tests::is_sound(cache->region(), *outcome.pin));
    } else if (outcome.kernel_fd >= 0) {
      ++passed;
      close(outcome.kernel_fd);
    } else {
      ++absent;
      ASSERT_EQ(outcome.error, ENOENT);
    }
  }
  changer.join();
  std::printf("%d served, %d passed on, %d absent\n", served, passed, absent);
}

TEST_F(FileCacheTest, FindNeverFetches) {
  const std::string path = dir.write("f", "hello");
  EXPECT_FALSE(cache->find(request_for(path)));
  EXPECT_EQ(cache.count(Counter::origin_opens), 0U);
  ASSERT_TRUE(open(path).pin);
  EXPECT_TRUE(cache->find(request_for(path)));
  EXPECT_EQ(cache.count(Counter::hits_ram), 0U) << "only opens are";
}

TEST_F(FileCacheTest, TwoNamesOfOneFileAreTwoRecords) {
  const std::string path = dir.write("f", "hello");
  ASSERT_EQ(symlink("f", (dir / "link").c_str()), 0);
  const OpenOutcome a = open(path), b = open(dir / "link");
  ASSERT_TRUE(a.pin);
  ASSERT_TRUE(b.pin);
  EXPECT_TRUE(a.pin->is_physical());
  EXPECT_FALSE(b.pin->is_physical());
}

TEST_F(FileCacheTest, OpenSucceedsThoughTheRegionFileIsRemoved) {
  const std::string path = dir.write("f", "hello");
  unlink(cache.path().c_str());
  EXPECT_EQ(read_past_the_cache(path), "hello");
  EXPECT_EQ(cache.count(Counter::bypassed_full), 1U);
}

}  // namespace
}  // namespace cube::cache
