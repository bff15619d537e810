// The times of a file decide whether it is cached, and whether it is revalidated after the read.
// The stats are made up: a file that a test has just made always has a recent ctime.
#include "cache/fill/record_fill.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstring>

#include "cache/base/clock.h"
#include "cache/record/recent_change.h"
#include "cache/region/writers.h"
#include "tests/support/child.h"
#include "tests/support/sanitizers.h"
#include "tests/support/test_region.h"
#include "tests/support/tracee.h"

namespace cube::cache {
namespace {

using base::ConsistencyKind;

struct FetchTest : testing::Test {
  tests::TestRegion region;
  RamTier tier{*region};
  std::int64_t now = static_cast<std::int64_t>(base::wall_ns() / 1'000'000'000ULL);
  static constexpr std::int64_t k_year = 365 * 24 * 3600;
  static constexpr std::uint32_t k_fine = 123'456'789;

  FileStat stat_of(std::uint64_t size, std::int64_t modified_ago, std::int64_t changed_ago,
                   std::uint32_t changed_ns = k_fine) const {
    FileStat stat = tests::stat_for("/mnt/data/f", size);
    stat.modified = {now - modified_ago, 0, 0};
    stat.changed = {now - changed_ago, changed_ns, 0};
    return stat;
  }
  RecordFill::Next accept(const FileStat& stat, ConsistencyKind kind = ConsistencyKind::immutable,
                          bool* looks_again = nullptr) {
    RecordFill fetch(tier, {.max_file = 1 << 20, .consistency = kind}, "/mnt/data/f");
    const RecordFill::Next next = fetch.accept({stat, true});
    if (looks_again != nullptr) *looks_again = fetch.wants_second_look();
    return next;
  }
  bool looks_again(const FileStat& stat) {
    bool result = false;
    EXPECT_EQ(accept(stat, ConsistencyKind::immutable, &result), RecordFill::Next::read);
    return result;
  }
};

// A writer by a path that no prefix covers reports its change only if the device is known.
TEST_F(FetchTest, DeviceIsKnownBeforeItsFirstFileIsRead) {
  const FileStat stat = stat_of(100, k_year, k_year);
  EXPECT_FALSE(tier.knows_device(stat.device()));
  EXPECT_EQ(accept(stat), RecordFill::Next::read);
  EXPECT_TRUE(tier.knows_device(stat.device()));
}

TEST_F(FetchTest, FileReadInSeveralRequestsIsRevalidatedAtAnyAge) {
  EXPECT_FALSE(looks_again(stat_of(128 << 10, k_year, k_year)));
  EXPECT_TRUE(looks_again(stat_of((128 << 10) + 1, k_year, k_year)));
}

TEST_F(FetchTest, FileWithARecentMtimeOrCtimeIsRevalidated) {
  EXPECT_FALSE(looks_again(stat_of(100, k_year, k_year)));
  EXPECT_FALSE(looks_again(stat_of(100, 100, 100)));
  EXPECT_TRUE(looks_again(stat_of(100, k_year, 30))) << "an old mtime and a recent ctime";
  EXPECT_TRUE(looks_again(stat_of(100, 30, k_year)));
  EXPECT_TRUE(looks_again(stat_of(100, -30, k_year))) << "of a clock that runs ahead";
  EXPECT_FALSE(looks_again(stat_of(100, -k_year, k_year))) << "of the far future";
}

// If a writer ends between the stat and the search for writers, the search no longer finds it, and
// loads the epoch after the writer has incremented it.
TEST_F(FetchTest, AStatFromBeforeTheEndOfAWriterIsInDoubt) {
  tests::TestCache cache;
  RamTier own(cache->region());
  const FileStat stat = stat_of(100, k_year, k_year);
  const auto fill_after = [&](bool writes, bool is_immutable) {
    RecordFill fill(own, {.max_file = 1 << 20}, "/mnt/data/f");
    if (writes) {
      cache->changes().writing_begins({}, stat);
      cache->changes().writing_ends(stat);
    }
    EXPECT_EQ(
        fill.accept(
            {.stat = stat, .is_physical = true, .origin = k_mounts, .is_immutable = is_immutable}),
        RecordFill::Next::read);
    EXPECT_EQ(fill.is_stat_in_doubt(), fill.wants_second_look());
    return fill.is_stat_in_doubt();
  };
  EXPECT_FALSE(fill_after(/*writes=*/false, /*is_immutable=*/false));
  EXPECT_TRUE(fill_after(/*writes=*/true, /*is_immutable=*/false));
  EXPECT_FALSE(fill_after(/*writes=*/true, /*is_immutable=*/true))
      << "of an origin that never changes";
  RecordFill prefetched(own, {.max_file = 1 << 20}, "/mnt/data/f", Lane::background);
  cache->changes().writing_begins({}, stat);
  cache->changes().writing_ends(stat);
  EXPECT_FALSE(prefetched.watch(stat)) << "the bytes of another node are those of this stat";
}

TEST_F(FetchTest, FileThatMayChangeWithinAStepOfACoarseClockIsNotCached) {
  constexpr ConsistencyKind k_kinds[] = {ConsistencyKind::immutable, ConsistencyKind::ttl,
                                         ConsistencyKind::open};
  for (const auto kind : k_kinds) {
    // A file system's clock may count only whole seconds or milliseconds.
    for (const std::uint32_t ns : {0U, 250'000'000U, 999'000'000U}) {
      EXPECT_EQ(accept(stat_of(100, k_year, 0, ns), kind), RecordFill::Next::refuse) << ns;
      EXPECT_EQ(accept(stat_of(100, k_year, -3, ns), kind), RecordFill::Next::refuse)
          << "of a clock that runs ahead";
      EXPECT_EQ(accept(stat_of(100, k_year, 10, ns), kind), RecordFill::Next::read);
    }
    // A fine clock would reveal a change, so freshly unpacked data sets are cached.
    EXPECT_EQ(accept(stat_of(100, k_year, 0), kind), RecordFill::Next::read);
  }
}

TEST_F(FetchTest, FreshFileIsNotCachedIfChangesAreExpected) {
  EXPECT_EQ(accept(stat_of(100, 0, 0), ConsistencyKind::immutable), RecordFill::Next::read);
  EXPECT_EQ(accept(stat_of(100, 0, 0), ConsistencyKind::ttl), RecordFill::Next::refuse);
  EXPECT_EQ(accept(stat_of(100, 0, 0), ConsistencyKind::open), RecordFill::Next::refuse);
}

// A fetch during a rename must give back its room and its places in the index. Otherwise 48 such
// fetches would keep a file out of the cache.
TEST_F(FetchTest, FetchesDuringChangesOfMetadataLeaveNothing) {
  const FileStat stat = stat_of(1000, k_year, k_year);
  const auto fetch_beside = [&](std::uint64_t changes) {
    RecordFill fetch(tier, {.max_file = 1 << 20}, "/mnt/data/f");
    if (fetch.accept({stat, true}) != RecordFill::Next::read) return false;
    std::memset(fetch.room(), 'x', stat.size);
    region->header().name_changes.fetch_add(changes);
    return fetch.publish();
  };
  for (std::uint32_t i = 0; i < 2 * Index::k_most_of_one; ++i) ASSERT_FALSE(fetch_beside(1)) << i;
  EXPECT_EQ(region->segment_row(0).fill.load(), 0U);
  EXPECT_EQ(region->header().records.load(), 0U);
  EXPECT_TRUE(fetch_beside(0));
}

// The change happens after the record has been added to the index.
TEST_F(FetchTest, UnconfirmedRecordIsNeverFound) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  const FileStat stat = stat_of(10, k_year, k_year);
  const auto entries = [&](std::uint32_t mark) {
    int n = 0;
    Index(*region).visit_all([&](const RecordPlace& place) {
      n += reinterpret_cast<const Record*>(region->segment(place.segment) + place.offset)
                       ->stale.load() == mark
               ? 1
               : 0;
    });
    return n;
  };
  tests::Tracee child([&] {
    Region* const mine = tests::attach(region.options);
    CHILD_CHECK(mine != nullptr);
    RamTier own_tier(*mine);
    RecordFill fetch(own_tier, {.max_file = 1 << 20}, "/mnt/data/f");
    CHILD_CHECK(fetch.accept({stat, true}) == RecordFill::Next::read);
    std::memset(fetch.room(), 'x', stat.size);
    raise(SIGSTOP);
    return fetch.publish() ? 10 : 20;
  });
  ASSERT_TRUE(child.to_stop());
  while (entries(Record::k_unconfirmed) < 2) ASSERT_TRUE(child.step());
  writer_stripe_of(*region, stat).epoch.fetch_add(1);
  int shown = 0;
  while (child.step()) shown += tests::find(tier, "/mnt/data/f") ? 1 : 0;
  EXPECT_EQ(child.exit_status(), 20);
  EXPECT_EQ(shown, 0) << "instructions for which the old bytes could be found";
  EXPECT_EQ(entries(Record::k_changed), 2) << "nobody would ever confirm it";
}

}  // namespace
}  // namespace cube::cache
