// A process that lists a directory or gathers the stats of its entries is stopped between two
// instructions. At that moment, the directory is changed or the process is killed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "cache/base/hash.h"
#include "cache/file_cache.h"
#include "cache/metadata/stat_gather.h"
#include "cache/region/single_flight.h"
#include "cache/report/job_totals.h"
#include "tests/cache/metadata_fixture.h"
#include "tests/support/sanitizers.h"
#include "tests/support/survivor.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tracee.h"

namespace cube::cache {
namespace {

using tests::Tracee;

struct MetadataSteps : testing::Test {
  tests::TempDir dir;
  tests::TestCache cache;
  const std::string place = dir.path(), file = dir.write("one", "one");

  MetadataSteps() { age(); }
  FileCache* attach() const { return tests::attach_cache(cache.config, cache.options.job); }
  // A directory that was changed a moment ago is not kept.
  void age() const {
    const timespec times[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, place.c_str(), times, 0), 0);
  }
  // Reports the change like the library.
  void change_entries(const std::string& name) const {
    ASSERT_EQ(close(creat((place + "/" + name).c_str(), 0600)), 0);
    age();
    tell_of_entries();
  }
  void tell_of_entries() const {
    cache->changes().entries_changed(*stat_path(AT_FDCWD, place.c_str(), 0));
  }
  void tell_of_file() const {
    const auto stat = stat_path(AT_FDCWD, file.c_str(), 0);
    cache->changes().content_changed({}, &*stat);
  }
  void change_file() const {
    const auto stat = stat_path(AT_FDCWD, file.c_str(), 0);
    cache->changes().writing_begins(file, *stat);
    ASSERT_EQ(truncate(file.c_str(), static_cast<off_t>(stat->size + 1)), 0);
    cache->changes().writing_ends(*stat);
  }
  MountMetadata::Says stat(FileStat& found) const {
    return cache->metadata().stat(file, /*no_follow=*/true, false, found);
  }
};

TEST_F(MetadataSteps, StatOfAFileChangedMeanwhileIsNotShown) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  Tracee child([&] {
    FileCache* const own = attach();
    CHILD_CHECK(own != nullptr);
    while (true) {
      const auto work = StatGather::begin(own->metadata(), place, "one");
      CHILD_CHECK(work != nullptr);
      const base::UniqueFd directory = work->open();
      raise(SIGSTOP);
      while (work->step(directory.get())) {
      }
      raise(SIGSTOP);
    }
  });
  int shown = 0, unknown = 0;
  bool is_whole = false;
  for (long steps = 0; !is_whole && steps < 40'000; steps += steps < 160 ? 2 : 2741) {
    ASSERT_TRUE(child.to_stop());
    ASSERT_TRUE(child.to_exit_of(SYS_statx));
    is_whole = child.step_on(steps);
    change_file();
    if (!is_whole) {
      ASSERT_TRUE(child.to_stop());
    }
    FileStat found;
    const auto now = stat_path(AT_FDCWD, file.c_str(), 0);
    const bool is_shown = stat(found) == MountMetadata::Says::present;
    EXPECT_FALSE(is_shown && !found.is_unchanged_since(*now)) << "at step " << steps;
    (is_shown ? shown : unknown) += 1;
    // The next round gathers it again.
    tell_of_file();
  }
  EXPECT_TRUE(is_whole) << "it has more steps than that";
  EXPECT_EQ(shown, 0) << "the change comes after the stat";
  EXPECT_GT(unknown, 0);
}

TEST_F(MetadataSteps, NameCreatedWhileItsDirectoryIsListedHasNoNegativeEntry) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  Tracee child([&] {
    FileCache* const own = attach();
    CHILD_CHECK(own != nullptr);
    while (true) {
      raise(SIGSTOP);
      tests::entries_of(own->metadata(), place);
      raise(SIGSTOP);
    }
  });
  int kept = 0;
  bool is_whole = false;
  for (long steps = 0, n = 0; !is_whole && steps < 40'000; steps += 397, ++n) {
    ASSERT_TRUE(child.to_stop());
    ASSERT_TRUE(child.to_exit_of(SYS_getdents64));
    is_whole = child.step_on(steps);
    const std::string name = "new" + std::to_string(n);
    if (is_whole) kept += cache->metadata().is_absent(place + "/" + name) ? 1 : 0;
    change_entries(name);
    if (!is_whole) {
      ASSERT_TRUE(child.to_stop());
    }
    EXPECT_FALSE(cache->metadata().is_absent(place + "/" + name)) << "at step " << steps;
    unlink((place + "/" + name).c_str());
    age();
    tell_of_entries();
  }
  EXPECT_TRUE(is_whole) << "it has more steps than that";
  EXPECT_EQ(kept, 1) << "without a change the listing is kept";
}

TEST_F(MetadataSteps, NameCreatedDuringARevalidationIsNotHiddenByAStoredListing) {
  Tracee child([&] {
    FileCache* const own = attach();
    CHILD_CHECK(own != nullptr);
    tests::ShelvedListing shelved(*own, cache.config, place);
    raise(SIGSTOP);
    tests::entries_of(shelved.metadata, place);
    raise(SIGSTOP);
    return 0;
  });
  ASSERT_TRUE(child.to_stop());
  ASSERT_TRUE(child.to_exit_of(SYS_statx));
  change_entries("new");
  ASSERT_TRUE(child.to_stop());
  EXPECT_FALSE(cache->metadata().is_absent(place + "/new"));
}

// A process is stopped between its lookup and its flight. Meanwhile, another process does the same
// work, so the first process must not do it again.
struct MetadataOnce : MetadataSteps {
  std::uint64_t counted(base::Counter counter) const {
    return collect_all(cache->region()).totals[counter];
  }
  // `outdate` makes the work necessary again. `work` takes the flight of the hash, and increments
  // the counter.
  template <typename Outdate, typename Work>
  void expect_once(base::Counter counter, std::uint64_t hash, Outdate&& outdate, Work&& work,
                   void (*other)(MountMetadata&, const std::string&)) {
    if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
    const SingleFlight flights(cache->region());
    Tracee child([&] {
      FileCache* const own = attach();
      CHILD_CHECK(own != nullptr);
      while (true) {
        raise(SIGSTOP);
        work(own->metadata());
        raise(SIGSTOP);
      }
    });
    int rounds = 0;
    for (bool is_under_way = false; !is_under_way; ++rounds) {
      outdate();
      ASSERT_TRUE(child.to_stop());
      ASSERT_FALSE(child.step_on(31 * rounds)) << "it has done the work without a flight";
      is_under_way = flights.is_under_way(hash);
      const std::uint64_t before = counted(counter);
      if (!is_under_way) other(cache->metadata(), place);
      ASSERT_TRUE(child.to_stop());
      ASSERT_EQ(counted(counter) - before, 1U) << "in round " << rounds;
    }
    EXPECT_GT(rounds, 10);
  }
  template <typename Work>
  void expect_read_once(Work&& work) {
    expect_once(
        base::Counter::metadata_read, base::hash_path(place) ^ base::hash_path("/"),
        [&] { tell_of_entries(); }, work,
        [](MountMetadata& names, const std::string& there) { tests::entries_of(names, there); });
  }
};

TEST_F(MetadataOnce, DirectoryIsReadOnceByTwoPrograms) {
  expect_read_once([&](MountMetadata& names) { tests::entries_of(names, place); });
}

TEST_F(MetadataOnce, DirectoryIsReadOnceByAProgramAndAThreadAheadOfIt) {
  expect_read_once([&](MountMetadata& names) { names.list_ahead(place, place.c_str()); });
}

TEST_F(MetadataOnce, DirectoryIsReadOnceByAProgramAndAThreadThatGathersStats) {
  expect_read_once([&](MountMetadata& names) { names.listing_of(place, place.c_str()); });
}

TEST_F(MetadataOnce, StatsAreGatheredOnceByTwoThreads) {
  expect_once(
      base::Counter::metadata_gathered, base::hash_path(place) ^ base::hash_path("//"),
      [&] { tell_of_file(); }, [&](MountMetadata& names) { tests::gather(names, place, "one"); },
      [](MountMetadata& names, const std::string& there) { tests::gather(names, there, "one"); });
}

// Killed at each system call, and at some instructions after it.
TEST_F(MetadataSteps, ProcessKilledAnywhereLeavesListingsAndFlightsUsable) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  constexpr long k_behind[] = {0, 97};
  tests::Survivor survivor(cache->region());
  tests::KillCounts counts;
  bool is_whole = false;
  for (int call = 1; !is_whole && call < 200; ++call) {
    for (const long steps : k_behind) {
      tell_of_entries();
      tell_of_file();
      Tracee child([&] {
        FileCache* const own = attach();
        CHILD_CHECK(own != nullptr);
        raise(SIGSTOP);
        CHILD_CHECK(tests::gather(own->metadata(), place, "one"));
        raise(SIGSTOP);
        return 0;
      });
      ASSERT_TRUE(child.to_stop());
      for (int i = 0; i < call && !is_whole; ++i)
        is_whole = !child.to_system_call() || child.is_at_raise();
      if (!is_whole) child.step_on(steps);
      child.kill();
      ++counts.kills;
      survivor.check_tables(counts);
      ASSERT_EQ(tests::entries_of(cache->metadata(), place), 3)
          << "call " << call << ", step " << steps;
      FileStat found;
      // The stats must be gathered again unless the dead process has published them.
      if (stat(found) != MountMetadata::Says::present) {
        ASSERT_TRUE(tests::gather(cache->metadata(), place, "one"))
            << "call " << call << ", step " << steps;
        ASSERT_EQ(stat(found), MountMetadata::Says::present);
      }
      ASSERT_TRUE(found.is_unchanged_since(*stat_path(AT_FDCWD, file.c_str(), 0)));
    }
  }
  counts.print("while names are gathered");
  EXPECT_TRUE(is_whole);
  EXPECT_TRUE(counts.is_clean());
}

}  // namespace
}  // namespace cube::cache
