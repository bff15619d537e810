// Fetches and copies that race with a change. After the change, the old bytes are not found.
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include "cache/region/writers.h"
#include "tests/cache/writers_fixture.h"
#include "tests/support/attached_child.h"
#include "tests/support/sanitizers.h"

namespace cube::cache {
namespace {

using tests::request_for;

TEST_F(WritersTest, AFetchThatHasReadOldBytesDoesNotCacheThem) {
  const std::string path = dir.write("f", "old");
  const FileStat stat = stat_of(path);
  tests::Tracee child = fetcher_that_has_read(path);
  tests::TempDir::write_file(path, "new");
  cache->changes().content_changed(path, &stat);
  while (child.to_system_call()) {
  }
  EXPECT_EQ(child.exit_status(), 20) << "the fetcher itself";
  EXPECT_EQ(open(path), "new");
}

// The writer has registered, but has not yet marked the records that other processes read.
TEST_F(WritersTest, FetchIsNotCachedIfAWriterIsKilledAsItBegins) {
  const std::string path = dir.write("f", "old");
  const FileStat stat = stat_of(path);
  tests::Tracee fetcher = fetcher_that_has_read(path);
  tests::Child writer =
      tests::attached_child(cache.options, [&](Region& mine) { writing_begins(mine, stat); });
  tests::TempDir::write_file(path, "new");
  writer.kill();
  cache->region().reap();
  while (fetcher.to_system_call()) {
  }
  EXPECT_EQ(fetcher.exit_status(), 20);
  EXPECT_EQ(open(path), "new");
}

// The record must not be found before its fetcher has checked the epoch.
TEST_F(WritersTest, RecordIsHiddenUntilItsFetcherHasCheckedForWriters) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  const std::string path = dir.write("f", "old");
  const FileStat stat = stat_of(path);
  tests::Tracee child = fetcher_that_has_read(path);
  tests::TempDir::write_file(path, "new");
  cache->changes().content_changed(path, &stat);
  RamTier tier(cache->region());
  int shown = 0;
  while (child.step()) {
    if (!tests::find(tier, path)) {
      if (shown > 0) break;
      continue;
    }
    ++shown;
  }
  EXPECT_EQ(shown, 0) << "instructions for which the old bytes could be found";
}

// If the fetcher dies at that point, the old bytes must not stay in the cache forever.
TEST_F(WritersTest, FetcherKilledBeforeItChecksForWritersLeavesNothing) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  const std::string path = dir.write("f", "old");
  const FileStat stat = stat_of(path);
  tests::Tracee child = fetcher_that_has_read(path);
  tests::TempDir::write_file(path, "new");
  cache->changes().content_changed(path, &stat);
  RamTier tier(cache->region());
  while (child.step() && !tests::find(tier, path)) {
  }
  child.kill();
  EXPECT_EQ(open(path), "new");
}

TEST_F(WritersTest, FetchRacingWithUnlinkIsNotCached) {  // without a stat there is no epoch
  const std::string path = dir.write("f", "old");
  tests::Tracee child = fetcher_that_has_read(path);
  unlink(path.c_str());
  cache->changes().content_changed(path, nullptr);
  while (child.to_system_call()) {
  }
  EXPECT_EQ(cache->open(request_for(path)).error, ENOENT);
}

TEST_F(WritersTest, FetchRacingWithARenameOverItsPathIsNotCached) {
  const std::string path = dir.write("f", "old"), other = dir.write("g", "new");
  tests::Tracee child = fetcher_that_has_read(path);
  rename(other.c_str(), path.c_str());
  cache->changes().content_changed(path, nullptr);
  while (child.to_system_call()) {
  }
  EXPECT_EQ(open(path), "new");
}

// Otherwise a program that writes its log below the prefix would keep all files out of the cache.
TEST_F(WritersTest, FetchRacingWithAChangeOfAnotherPathIsCached) {
  const std::string path = dir.write("f", "old");
  const WriterStripe* const own = &writer_stripe_of(cache->region(), stat_of(path));
  std::string other = dir.write("g", "x");
  for (int i = 0; &writer_stripe_of(cache->region(), stat_of(other)) == own; ++i)
    other = dir.write("g" + std::to_string(i), "x");
  tests::Tracee child = fetcher_that_has_read(path);
  const FileStat stat = stat_of(other);
  cache->changes().content_changed(other, &stat);
  while (child.to_system_call()) {
  }
  EXPECT_EQ(open(path), "old");
  EXPECT_EQ(cache.count(base::Counter::hits_ram), 1U);
}

TEST_F(WritersTest, FetchRacingWithARenameOfItsDirectoryIsNotCached) {
  mkdir((dir / "d").c_str(), 0755);
  const std::string path = dir.write("d/f", "old");
  EXPECT_EQ(open(dir.write("g", "x")), "x");
  tests::Tracee child = fetcher_that_has_read(path);
  rename((dir / "d").c_str(), (dir / "e").c_str());
  cache->changes().tree_changed(dir / "d");
  while (child.to_system_call()) {
  }
  EXPECT_EQ(cache->open(request_for(path)).error, ENOENT);
}

// If a process dies after it adds a record to the index and before it counts the record, the cache
// must not look empty.
TEST_F(WritersTest, TreeChangedDropsARecordThatWasPublishedButNotCounted) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  mkdir((dir / "d").c_str(), 0755);
  const std::string path = dir.write("d/f", "old");
  RamTier tier(cache->region());
  tests::Tracee child = fetcher_that_has_read(path);
  while (child.step() && !tests::find(tier, path)) {
  }
  child.kill();
  rename((dir / "d").c_str(), (dir / "e").c_str());
  cache->changes().tree_changed(dir / "d");
  EXPECT_EQ(cache->open(request_for(path)).error, ENOENT);
}

// The writer has found the old record but has not yet marked it. The copy that replaces the record
// must also be marked.
TEST_F(WritersTest, MappableCopyMadeWhileAWriterMarksTheRecordIsNotFound) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  const std::string path = dir.write("f", "old");
  const OpenOutcome first = cache->open(request_for(path));
  ASSERT_TRUE(first.pin);
  const FileStat stat = stat_of(path);
  tests::Tracee writer([&] {
    FileCache* const mine = tests::attach_cache(cache.config, cache.options.job);
    CHILD_CHECK(mine != nullptr);
    raise(SIGSTOP);
    tests::TempDir::write_file(path, "new");
    mine->changes().content_changed(path, &stat);
    return 0;
  });
  ASSERT_TRUE(writer.to_stop());
  // The writer maps a window in order to mark the record, so it has seen the record.
  ASSERT_TRUE(writer.to_entry_of(SYS_mremap, 1));
  const auto copy = cache->make_mappable(*first.pin);
  while (writer.to_system_call()) {
  }
  ASSERT_EQ(writer.exit_status(), 0);
  EXPECT_EQ(open(path), "new");
}

}  // namespace
}  // namespace cube::cache
