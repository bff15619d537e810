// A stat that threads have gathered can validate a record of an earlier job, without another
// request to the origin.
#include "cache/origin/known_stats.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "cache/base/clock.h"
#include "cache/file_cache.h"
#include "cache/metadata/stat_gather.h"
#include "cache/region/ram/metadata_room.h"
#include "tests/cache/metadata_fixture.h"
#include "tests/support/child.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

using base::Counter;
using tests::request_for;

constexpr std::int64_t k_long_ago = 1'000'000'000;

void age_to(const std::string& path, std::int64_t seconds) {
  const timespec times[2] = {{seconds, 0}, {seconds, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

std::uint64_t count_of(FileCache& cache, Counter counter) {
  return cache.stats().counters[static_cast<std::size_t>(counter)].load();
}

bool gather(FileCache& cache, const std::string& directory) {
  return tests::gather(cache.metadata(), directory, {});
}

struct KnownStatsTest : testing::Test {
  tests::TempDir dir;
  tests::TestCache cache;

  void SetUp() override {
    for (const char* const name : {"one", "two"}) put(name, name);
    ASSERT_EQ(symlink("one", (dir / "link").c_str()), 0);
    age_to(dir.path(), k_long_ago);
  }
  void put(const std::string& name, const char* content, std::int64_t seconds = k_long_ago) const {
    dir.write(name, content);
    age_to(dir / name, seconds);
  }
  auto known(const std::string& name, std::uint64_t since = 0) {
    return cache->metadata().known_stat(dir / name, since);
  }
};

TEST_F(KnownStatsTest, FindsStatsGatheredSinceATime) {
  EXPECT_FALSE(known("one")) << "nobody has asked";
  const std::uint64_t before = base::boot_ns();
  ASSERT_TRUE(gather(*cache.cache, dir.path()));
  const auto found = known("one", before);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->stat.is_unchanged_since(*stat_path(AT_FDCWD, (dir / "one").c_str(), 0)));
  EXPECT_GE(found->looked_ns, before);
  EXPECT_TRUE(known("one", found->looked_ns));
  EXPECT_FALSE(known("one", found->looked_ns + 1)) << "the look is older";
  EXPECT_FALSE(known("link")) << "a link says nothing of what it leads to";
  EXPECT_FALSE(known("three"));
  EXPECT_FALSE(known("one/two"));
}

// A gathering thread continues in the directory that it has opened, even if the directory is moved.
TEST_F(KnownStatsTest, AreAsOldAsTheBeginOfTheGathering) {
  const std::string moved = dir.path() + ".moved";
  const auto work = StatGather::begin(cache->metadata(), dir.path(), {});
  ASSERT_NE(work, nullptr);
  const base::UniqueFd own = work->open();
  ASSERT_EQ(rename(dir.path().c_str(), moved.c_str()), 0);
  ASSERT_EQ(mkdir(dir.path().c_str(), 0755), 0);
  const std::uint64_t replaced = base::boot_ns();
  while (work->step(own.get())) {
  }
  EXPECT_TRUE(known("one"));
  EXPECT_FALSE(known("one", replaced))
      << "a job that began then would be shown the file of the former directory";
  ASSERT_EQ(rmdir(dir.path().c_str()), 0);
  ASSERT_EQ(rename(moved.c_str(), dir.path().c_str()), 0);
}

TEST_F(KnownStatsTest, DropsStatsOfFilesThatAProgramChanges) {
  ASSERT_TRUE(gather(*cache.cache, dir.path()));
  cache->changes().content_changed({}, &known("one")->stat);
  EXPECT_FALSE(known("one"));
  const FileStat two = known("two")->stat;
  cache->changes().writing_begins(dir / "two", two);
  EXPECT_FALSE(known("two"));
}

// Opens in a process of another job. Returns 100 plus the number of stats that it has requested, or
// a smaller code for a fault.
template <typename Before>
int open_as_next_job(const base::Config& config, const std::string& path,
                     const std::string& expected, Before&& before_open) {
  return tests::run_in_child([&] {
    base::ProcessId id = base::current_process();
    id.start_time += 2;
    FileCache* const next = tests::attach_cache(config, id);
    CHILD_CHECK(next != nullptr);
    before_open(*next);
    const std::uint64_t before = count_of(*next, Counter::origin_stats);
    const OpenOutcome outcome = next->open(request_for(path));
    if (!outcome.pin || tests::bytes_of(*outcome.pin) != expected) return 2;
    return 100 + static_cast<int>(count_of(*next, Counter::origin_stats) - before);
  });
}

TEST_F(KnownStatsTest, ProvesARecordInMemory) {
  const std::string path = dir / "one", directory = dir.path();
  ASSERT_TRUE(cache->open(request_for(path)).pin);
  EXPECT_EQ(open_as_next_job(cache.config, path, "one", [](FileCache&) {}), 101);
  ASSERT_TRUE(gather(*cache.cache, directory));
  const auto one_more = [&](FileCache& next) { gather(next, directory); };
  EXPECT_EQ(open_as_next_job(cache.config, path, "one", one_more), 101)
      << "what was gathered before the job began is too old";
}

TEST_F(KnownStatsTest, ProvesARecordInMemoryOnceItIsOfThisJob) {
  const std::string path = dir / "one", directory = dir.path();
  ASSERT_TRUE(cache->open(request_for(path)).pin);
  EXPECT_EQ(open_as_next_job(cache.config, path, "one",
                             [&](FileCache& next) { gather(next, directory); }),
            100);
}

TEST_F(KnownStatsTest, ServesNoRecordThatItDoesNotProve) {
  const std::string path = dir / "one", directory = dir.path();
  ASSERT_TRUE(cache->open(request_for(path)).pin);
  put("one", "1st", k_long_ago + 1);
  age_to(directory, k_long_ago);
  EXPECT_GE(open_as_next_job(cache.config, path, "1st",
                             [&](FileCache& next) { gather(next, directory); }),
            101);
}

TEST_F(KnownStatsTest, AreNotUsedIfEachOpenRevalidates) {
  const std::string path = dir / "one", directory = dir.path();
  ASSERT_TRUE(cache->open(request_for(path)).pin);
  base::Config config = cache.config;
  config.consistency.kind = base::ConsistencyKind::open;
  EXPECT_EQ(
      open_as_next_job(config, path, "one", [&](FileCache& next) { gather(next, directory); }),
      101);
}

// Notes opens in one directory that wait for the origin. Returns true if one of them caused the
// directory's stats to be gathered.
bool note_looks(FileCache& cache, const std::string& path) {
  constexpr int k_many = 48 + 4;
  int reasons = 0;
  for (int i = 0; i < k_many; ++i) reasons += cache.metadata().note_look(path) ? 1 : 0;
  return reasons > 0;
}

std::uint32_t names_segments(FileCache& cache) { return MetadataRoom(cache.region()).count(); }

struct KnownStatsInSmallMemory : KnownStatsTest {
  tests::TestCache small{24 * tests::k_mib};
};

TEST_F(KnownStatsInSmallMemory, HaveASegmentIfOpensWait) {
  ASSERT_GT(small.cache->region().layout().segment_bytes, 24 * tests::k_mib / 100 * 6)
      << "no share of names holds one";
  ASSERT_TRUE(note_looks(*small.cache, dir / "one"));
  ASSERT_TRUE(gather(*small.cache, dir.path()));
  EXPECT_EQ(names_segments(*small.cache), 1);
  EXPECT_TRUE(small->metadata().known_stat(dir / "one", 0));
}

TEST_F(KnownStatsInSmallMemory, LieBesideFilesIfNoOpenWaits) {
  ASSERT_TRUE(gather(*small.cache, dir.path()));
  EXPECT_EQ(names_segments(*small.cache), 0);
  EXPECT_TRUE(small->metadata().known_stat(dir / "one", 0));
}

TEST_F(KnownStatsTest, AreNotGatheredIfMemoryHasNoSegmentToSpare) {
  tests::TestCache tiny(12 * tests::k_mib);
  EXPECT_FALSE(note_looks(*tiny.cache, dir / "one"));
  tests::TestCache none(24 * tests::k_mib, [](base::Config& config) {
    config.metadata_ram = {.is_percent = false, .value = 0};
  });
  EXPECT_FALSE(note_looks(*none.cache, dir / "one"));
}

}  // namespace
}  // namespace cube::cache
