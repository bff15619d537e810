// CUBESHIM_CONSISTENCY decides when the cache asks the origin again.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "cache/base/clock.h"
#include "cache/file_cache.h"
#include "cache/fill/background_fill.h"
#include "tests/support/child.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

using base::ConsistencyKind;
using base::Counter;
using tests::request_for;
using tests::TestCache;

std::string bytes(const OpenOutcome& outcome) {
  return outcome.pin ? std::string(tests::bytes_of(*outcome.pin)) : "(no pin)";
}

// Writes a file with old times, so that it counts as unlikely to be written again. Each version is
// a second newer than the previous version.
void write_old(const std::string& path, const char* content) {
  static time_t version = 1'600'000'000;
  const timespec times[2] = {{++version, 0}, {version, 0}};
  tests::TempDir::write_file(path, content);
  utimensat(AT_FDCWD, path.c_str(), times, 0);
}
std::string old_file(const tests::TempDir& dir, const char* content) {
  write_old(dir / "f", content);
  return dir / "f";
}

std::uint64_t stats_of(FileCache& cache) {
  return cache.stats().counters[static_cast<std::size_t>(Counter::origin_stats)].load();
}

// Opens in a process of another job. Returns how many stats the open has requested, or -1 if the
// bytes are wrong.
int open_as_another_job(const base::Config& config, const std::string& path,
                        const std::string& expected, std::uint64_t job = 1) {
  return tests::run_in_child([&] {
    base::ProcessId id = base::current_process();
    id.start_time += 2 * job;
    FileCache* const cache = tests::attach_cache(config, id);
    CHILD_CHECK(cache != nullptr);
    const std::uint64_t before = stats_of(*cache);
    const OpenOutcome first = cache->open(request_for(path));
    const int asked = static_cast<int>(stats_of(*cache) - before);
    if (bytes(first) != expected) return 255;
    const OpenOutcome second = cache->open(request_for(path));
    if (bytes(second) != expected || static_cast<int>(stats_of(*cache) - before) != asked)
      return 254;
    return 10 + asked;
  });
}

TEST(Consistency, ImmutableDoesNotRevalidateWithinAJob) {
  const tests::TempDir dir;
  const TestCache cache;
  const std::string path = old_file(dir, "one");
  ASSERT_EQ(bytes(cache->open(request_for(path))), "one");
  write_old(path, "changed by another node");
  const std::uint64_t before = stats_of(*cache.cache);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(bytes(cache->open(request_for(path))), "one");
  EXPECT_EQ(stats_of(*cache.cache), before);
}

TEST(Consistency, ImmutableChecksRecordsOfAnotherJobOnce) {
  const tests::TempDir dir;
  const TestCache cache;
  const std::string path = old_file(dir, "one");
  ASSERT_EQ(bytes(cache->open(request_for(path))), "one");
  EXPECT_EQ(open_as_another_job(cache.config, path, "one"), 11);
}

TEST(Consistency, ImmutableSeesChangesSinceAnotherJob) {
  const tests::TempDir dir;
  const TestCache cache;
  const std::string path = old_file(dir, "one");
  ASSERT_EQ(bytes(cache->open(request_for(path))), "one");
  write_old(path, "three");
  const int asked = open_as_another_job(cache.config, path, "three");
  EXPECT_GE(asked, 12);
  EXPECT_LE(asked, 13);
  unlink(path.c_str());
  EXPECT_EQ(open_as_another_job(cache.config, path, "(no pin)", 2), 11);
}

// Two jobs that run at the same time must not clear each other's mark.
TEST(Consistency, ImmutableChecksOnceAlsoIfTwoJobsAlternate) {
  const tests::TempDir dir;
  const TestCache cache;
  const std::string path = old_file(dir, "one");
  ASSERT_EQ(bytes(cache->open(request_for(path))), "one");
  tests::Gate ready, go;
  tests::Child other([&] {
    base::ProcessId id = base::current_process();
    FileCache* const mine = tests::attach_cache(cache.config, id);
    for (int i = 0; i < 10; ++i) {
      if (mine == nullptr || !go.take() || bytes(mine->open(request_for(path))) != "one") return 1;
      ready.give();
    }
    return static_cast<int>(stats_of(*mine)) + 10;
  });
  const std::uint64_t before = stats_of(*cache.cache);
  for (int i = 0; i < 10; ++i) {
    go.give();
    ASSERT_TRUE(ready.take());
    ASSERT_EQ(bytes(cache->open(request_for(path))), "one");
  }
  EXPECT_LE(stats_of(*cache.cache) - before, 1U);
  EXPECT_LE(other.wait(), 11);
}

TEST(Consistency, OpenRevalidatesEachTime) {
  const tests::TempDir dir;
  const TestCache cache(
      16 << 20, [](base::Config& config) { config.consistency.kind = ConsistencyKind::open; });
  const std::string path = old_file(dir, "one");
  ASSERT_EQ(bytes(cache->open(request_for(path))), "one");
  const std::uint64_t before = stats_of(*cache.cache);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(bytes(cache->open(request_for(path))), "one");
  EXPECT_EQ(stats_of(*cache.cache), before + 5);
  write_old(path, "three");
  EXPECT_EQ(bytes(cache->open(request_for(path))), "three");
  EXPECT_FALSE(cache->find(request_for(dir / "other")));
  unlink(path.c_str());
  EXPECT_EQ(cache->open(request_for(path)).error, ENOENT);
}

TEST(Consistency, OpenSeesANewFileOfTheSameSizeAndTime) {
  const tests::TempDir dir;
  const TestCache cache(
      16 << 20, [](base::Config& config) { config.consistency.kind = ConsistencyKind::open; });
  const std::string path = dir.write("f", "one"), other = dir.write("g", "two");
  const timespec times[2] = {{1000, 0}, {1000, 0}};
  for (const auto& p : {path, other}) utimensat(AT_FDCWD, p.c_str(), times, 0);
  ASSERT_EQ(bytes(cache->open(request_for(path))), "one");
  ASSERT_EQ(rename(other.c_str(), path.c_str()), 0);
  EXPECT_EQ(bytes(cache->open(request_for(path))), "two");
}

// A waiter must not get what another process's fetch has read if the file changed before the waiter
// opened it.
TEST(Consistency, OpenRevalidatesTheResultOfAnEarlierFetch) {
  const tests::TempDir dir;
  const TestCache cache(
      16 << 20, [](base::Config& config) { config.consistency.kind = ConsistencyKind::open; });
  const std::string path = old_file(dir, "one");
  std::string seen;
  std::thread program;
  {
    BackgroundFill fetch = cache.cache->ahead().fill(path, false);
    ASSERT_EQ(fetch.begin(), BackgroundFill::Begin::fetch);
    ASSERT_EQ(fetch.accept({*stat_path(AT_FDCWD, path.c_str(), 0), true}), RecordFill::Next::read);
    std::memcpy(fetch.room(), "one", 3);
    write_old(path, "three");
    const FlightSlot& slot = cache->region().flight_slot(
        static_cast<std::uint32_t>(base::hash_path(path) % k_flight_slots));
    program = std::thread([&] { seen = bytes(cache->open(request_for(path))); });
    while (slot.waiting.load() == 0) std::this_thread::yield();
    EXPECT_TRUE(fetch.publish());
  }
  program.join();
  EXPECT_EQ(seen, "three");
}

// The recorded time must be from before the revalidation. Otherwise, a change between the two would
// count as seen.
TEST(Consistency, PrefetchNotesTheTimeBeforeItRevalidates) {
  const tests::TempDir dir;
  const TestCache cache(
      16 << 20, [](base::Config& config) { config.consistency.kind = ConsistencyKind::open; });
  const std::string path = old_file(dir, "one");
  const OpenOutcome outcome = cache->open(request_for(path));
  BackgroundFill fetch = cache.cache->ahead().fill(path, false);
  ASSERT_EQ(fetch.begin(), BackgroundFill::Begin::fetch);
  const auto look = stat_path(AT_FDCWD, path.c_str(), 0);
  const std::uint64_t looked = base::boot_ns();
  ASSERT_EQ(fetch.accept({*look, true}), RecordFill::Next::done);
  EXPECT_LT(outcome.pin->verified_ns.load(), looked);
}

// rsync -t, cp -p and touch -r can leave size and mtime unchanged.
TEST(Consistency, OpenSeesAWriteThatRestoredTheTime) {
  const tests::TempDir dir;
  const TestCache cache(
      16 << 20, [](base::Config& config) { config.consistency.kind = ConsistencyKind::open; });
  const std::string path = old_file(dir, "one");
  ASSERT_EQ(bytes(cache->open(request_for(path))), "one");
  const FileStat before = *stat_path(AT_FDCWD, path.c_str(), 0);
  const timespec times[2] = {{before.modified.seconds, 0}, {before.modified.seconds, 0}};
  // The ctime moves with the kernel's tick.
  while (stat_path(AT_FDCWD, path.c_str(), 0)->changed == before.changed) {
    tests::TempDir::write_file(path, "two");
    utimensat(AT_FDCWD, path.c_str(), times, 0);
  }
  EXPECT_TRUE(stat_path(AT_FDCWD, path.c_str(), 0)->same_content(before));
  EXPECT_EQ(bytes(cache->open(request_for(path))), "two");
}

TEST(Consistency, TtlRevalidatesOnceItHasPassed) {
  const tests::TempDir dir;
  const TestCache cache(16 << 20, [](base::Config& config) {
    config.consistency.kind = ConsistencyKind::ttl;
    config.consistency.ttl_seconds = 100;
  });
  const std::string path = old_file(dir, "one");
  const OpenOutcome first = cache->open(request_for(path));
  ASSERT_TRUE(first.pin);
  RamTier tier(cache->region());
  const auto now = static_cast<std::uint32_t>(base::boot_ns() / 1'000'000'000ULL);
  const auto asked_when_verified_at = [&](std::uint32_t seconds) {
    tier.mark_verified(*first.pin, std::uint64_t{seconds} * 1'000'000'000);
    const std::uint64_t before = stats_of(*cache.cache);
    EXPECT_EQ(bytes(cache->open(request_for(path))), "one");
    EXPECT_EQ(bytes(cache->open(request_for(path))), "one");
    return stats_of(*cache.cache) - before;
  };
  EXPECT_EQ(asked_when_verified_at(now), 0U);
  EXPECT_EQ(asked_when_verified_at(now - 90), 0U);
  EXPECT_EQ(asked_when_verified_at(now - 101), 1U);
  EXPECT_EQ(asked_when_verified_at(now + 5000), 1U) << "marked before the machine started";
  EXPECT_EQ(asked_when_verified_at(0), 1U);
  write_old(path, "three");
  EXPECT_EQ(bytes(cache->open(request_for(path))), "one");
  tier.mark_verified(*first.pin, std::uint64_t{now - 101} * 1'000'000'000);
  EXPECT_EQ(bytes(cache->open(request_for(path))), "three");
}

TEST(Consistency, TtlOfZeroRevalidatesEachTime) {
  const tests::TempDir dir;
  const TestCache cache(
      16 << 20, [](base::Config& config) { config.consistency.kind = ConsistencyKind::ttl; });
  const std::string path = old_file(dir, "one");
  ASSERT_EQ(bytes(cache->open(request_for(path))), "one");
  write_old(path, "three");
  EXPECT_EQ(bytes(cache->open(request_for(path))), "three");
}

}  // namespace
}  // namespace cube::cache
