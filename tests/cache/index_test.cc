// The hash index, filled with places that hold no records.
#include "cache/region/index.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <set>
#include <thread>
#include <vector>

#include "cache/region/segments.h"
#include "tests/support/effort.h"
#include "tests/support/sanitizers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

using tests::k_mib;
using tests::TestRegion;

std::uint64_t hash_of(std::uint64_t i) { return base::hash_bytes(&i, sizeof i); }
constexpr auto k_never = [](const RecordPlace&) { return false; };

void make_readable(Region& region, std::uint32_t generation) {
  for (std::uint32_t i = 0; i < region.layout().segment_count; ++i) {
    region.segment_row(i).word.store(
        SegmentWord{SegmentState::sealed, k_no_owner, generation}.as_word());
  }
}

// Returns place number i. All places are different.
RecordPlace place_of(const Region& region, std::uint64_t i, std::uint32_t generation = 1) {
  const std::uint64_t units = region.layout().segment_bytes / 64;
  return {static_cast<std::uint32_t>(i / units % region.layout().segment_count), generation,
          i % units * 64};
}

bool holds(const Index& index, std::uint64_t hash, const RecordPlace& wanted) {
  return index.visit(hash, [&](const RecordPlace& p) {
    return p.segment == wanted.segment && p.offset == wanted.offset &&
           p.generation == (wanted.generation & Index::k_generation_mask);
  });
}

TEST(Index, FindsInsertedEntries) {
  const TestRegion region;
  make_readable(*region, 1);
  Index index(*region);
  for (std::uint64_t i = 0; i < 1000; ++i)
    ASSERT_TRUE(index.insert(hash_of(i), place_of(*region, i), k_never, k_never));
  for (std::uint64_t i = 0; i < 1000; ++i)
    ASSERT_TRUE(holds(index, hash_of(i), place_of(*region, i))) << i;
  std::set<std::uint64_t> seen;
  index.visit_all(
      [&](const RecordPlace& p) { seen.insert(p.segment * 1'000'000'000ULL + p.offset); });
  EXPECT_EQ(seen.size(), 1000U);
}

TEST(Index, HoldsTheLargestPlaceAndTheOddestHashes) {
  const TestRegion region(4096 * k_mib);
  make_readable(*region, 0xffffffff);
  Index index(*region);
  const RegionLayout& l = region->layout();
  const RecordPlace last{l.segment_count - 1, 0xffffffff, l.segment_bytes - 64};
  const std::uint64_t hashes[] = {0, 1, 0xffff, 0x10000, UINT64_MAX, 0xffffffff00000000};
  for (const std::uint64_t hash : hashes) {
    ASSERT_TRUE(index.insert(hash, last, k_never, k_never));
    EXPECT_TRUE(holds(index, hash, last)) << hash;
  }
}

TEST(Index, VisitStopsOnRequest) {
  const TestRegion region;
  make_readable(*region, 1);
  Index index(*region);
  for (std::uint64_t i = 0; i < 4; ++i)
    ASSERT_TRUE(index.insert(42, place_of(*region, i), k_never, k_never));
  int visits = 0;
  EXPECT_TRUE(index.visit(42, [&](const RecordPlace&) { return ++visits == 2; }));
  EXPECT_EQ(visits, 2);
}

TEST(Index, HoldsTwoSmallBucketsOfOneHashThenFails) {
  const TestRegion region;
  make_readable(*region, 1);
  Index index(*region);
  int inserted = 0;
  while (index.insert(0x123456789abcdef0ULL,
                      place_of(*region, static_cast<std::uint64_t>(inserted)), k_never, k_never))
    ++inserted;
  EXPECT_EQ(inserted, static_cast<int>(Index::k_most_of_one));
  EXPECT_EQ(
      index.insert(0x123456789abcdef0ULL, place_of(*region, 99), k_never, k_never).error().value,
      EMLINK);
  EXPECT_EQ(region->header().index_tables.load(), 3U) << "the large tables are not for one hash";
}

TEST(Index, ReplacesOnlyEntriesThatTheCallerAllows) {
  const TestRegion region;
  make_readable(*region, 1);
  Index index(*region);
  ASSERT_TRUE(index.insert(7, place_of(*region, 1), k_never, k_never));
  ASSERT_TRUE(index.insert(7, place_of(*region, 2), k_never, k_never));
  ASSERT_TRUE(index.insert(
      7, place_of(*region, 3), [&](const RecordPlace& p) { return p.offset == 64; }, k_never));
  EXPECT_FALSE(holds(index, 7, place_of(*region, 1)));
  EXPECT_TRUE(holds(index, 7, place_of(*region, 2)));
  EXPECT_TRUE(holds(index, 7, place_of(*region, 3)));
}

// Inserts [0, n) at `generation`. Returns how many were refused.
std::uint64_t fill(Index& index, const Region& region, std::uint64_t n, std::uint64_t seed,
                   std::uint32_t generation) {
  std::uint64_t refused = 0;
  for (std::uint64_t i = 0; i < n; ++i)
    refused +=
        index.insert(hash_of(seed + i), place_of(region, i, generation), k_never, k_never) ? 0 : 1;
  return refused;
}

TEST(Index, SlotsOfDeadGenerationsAreTakenOver) {
  const TestRegion region(64 * k_mib);
  Index index(*region);
  const std::uint64_t n = tests::index_slots(*region) * 3 / 4;
  for (std::uint32_t generation = 1; generation < 5; ++generation) {
    make_readable(*region, generation);
    std::uint64_t living = 0;
    index.visit_all([&](const RecordPlace&) { ++living; });
    EXPECT_EQ(living, 0U);
    EXPECT_LE(fill(index, *region, n, generation * 10'000'000ULL, generation), n / 500);
  }
}

TEST(Index, TableIsAllocatedOnceEarlierOnesAreFull) {
  const TestRegion region(64 * k_mib);
  make_readable(*region, 1);
  Index index(*region);
  const RegionLayout& l = region->layout();
  std::uint64_t inserted = 0, before = 0;
  EXPECT_EQ(region->header().index_tables.load(), 1U);
  for (std::uint32_t tables = 1; tables < k_index_tables; ++tables) {
    before += std::uint64_t{l.bucket_count[tables - 1]} * IndexBucket::k_slots;
    while (region->header().index_tables.load() == tables) {
      ASSERT_TRUE(index.insert(hash_of(inserted), place_of(*region, inserted), k_never, k_never));
      ++inserted;
    }
    EXPECT_GT(inserted, before / 2) << "a table was added too early";
    EXPECT_LE(inserted, before + 1);
  }
  for (std::uint64_t i = 0; i < inserted; ++i)
    ASSERT_TRUE(holds(index, hash_of(i), place_of(*region, i))) << i;
}

TEST(Index, KeepsItsEntriesAndFailsIfATableGetsNoMemory) {
  const tests::TmpfsMount tmpfs("64m");
  if (!tmpfs.is_mounted()) GTEST_SKIP() << "cannot mount a tmpfs";
  const TestRegion region(24 * k_mib, tmpfs.path());
  make_readable(*region, 1);
  tmpfs.fill();
  Index index(*region);
  std::uint64_t n = 0;
  while (index.insert(hash_of(n), place_of(*region, n), k_never, k_never)) ++n;
  EXPECT_EQ(index.insert(hash_of(n), place_of(*region, n), k_never, k_never).error().value, ENOMEM);
  EXPECT_GT(n, 100U);
  for (std::uint64_t i = 0; i < n; ++i)
    ASSERT_TRUE(holds(index, hash_of(i), place_of(*region, i))) << i;
}

TEST(Index, HoldsAMillionEntries) {
  if (tests::k_tsan && !tests::is_long_run()) GTEST_SKIP() << "one thread, and a minute of it";
  const TestRegion region(4096 * k_mib);
  make_readable(*region, 1);
  Index index(*region);
  constexpr std::uint64_t k_entries = 1'000'000;
  const std::uint64_t refused = fill(index, *region, k_entries, 0, 1);
  std::uint64_t visited = 0, found = 0;
  for (std::uint64_t i = 0; i < k_entries; ++i) {
    const RecordPlace wanted = place_of(*region, i);
    index.visit(hash_of(i), [&](const RecordPlace& p) {
      ++visited;
      const bool right = p.segment == wanted.segment && p.offset == wanted.offset;
      found += right ? 1 : 0;
      return right;
    });
  }
  std::printf("a million entries: %llu refused, %.5f false candidates a look-up\n",
              static_cast<unsigned long long>(refused),
              static_cast<double>(visited - found) / k_entries);
  EXPECT_EQ(found, k_entries - refused) << "lost";
  EXPECT_LE(refused, k_entries / 1000);
  EXPECT_LT(visited - found, k_entries / 1000);
}

// The region has 5 slots for every 4 files of 4 KiB, so all these files must fit.
TEST(Index, RefusesAtMostOneIn500AtEightyPercentLoad) {
  for (const std::uint64_t mib : {16ULL, 512ULL, 4096ULL}) {
    if (mib > (tests::k_tsan ? 16U : 512U) && !tests::is_long_run())
      continue;  // minutes with ThreadSanitizer
    const TestRegion region(mib * k_mib);
    make_readable(*region, 1);
    Index index(*region);
    const double slots = static_cast<double>(tests::index_slots(*region));
    const auto wanted = static_cast<std::uint64_t>(slots * 0.8);
    std::uint64_t refused = 0, first = 0, at_80 = 0, n = 0;
    for (; n < static_cast<std::uint64_t>(slots); ++n) {
      if (!index.insert(hash_of(n), place_of(*region, n), k_never, k_never) && refused++ == 0)
        first = n;
      if (n == wanted) at_80 = refused;
    }
    std::printf(
        "region of %4llu MiB: %7.0f slots, first refusal at %.1f %% full, %.3f %% refused up to 80 "
        "%%, %.1f %% full in the end\n",
        static_cast<unsigned long long>(mib), slots, 100 * static_cast<double>(first) / slots,
        100 * static_cast<double>(at_80) / static_cast<double>(wanted),
        100 * static_cast<double>(n - refused) / slots);
    EXPECT_LE(at_80, wanted / 500);
    EXPECT_GT(static_cast<double>(n - refused) / slots, 0.9);
  }
}

TEST(Index, ConcurrentInsertsLoseNone) {
  const TestRegion region(256 * k_mib + 16 * k_mib);
  make_readable(*region, 1);
  constexpr std::uint64_t k_threads = 4, k_each = 10'000;
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < k_threads; ++t) {
    threads.emplace_back([&, t] {
      Index index(*region);
      for (std::uint64_t i = 0; i < k_each; ++i) {
        const std::uint64_t n = i * k_threads + t;
        if (!index.insert(hash_of(n), place_of(*region, n), k_never, k_never))
          failures.fetch_add(1);
        if (!holds(index, hash_of(n), place_of(*region, n))) failures.fetch_add(1);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failures.load(), 0);
  const Index index(*region);
  for (std::uint64_t n = 0; n < k_threads * k_each; ++n)
    ASSERT_TRUE(holds(index, hash_of(n), place_of(*region, n))) << n;
}

TEST(Index, ThreadsCompetingForOneSlotLoseNone) {
  const TestRegion region;
  make_readable(*region, 1);
  Index index(*region);
  constexpr std::uint64_t k_rounds = 4'000;
  constexpr std::uint64_t k_hash = 0x123456789abcdef0ULL;
  std::atomic<std::uint64_t> arrived{0};
  std::atomic<int> failures{0};
  // All threads arrive here before any thread continues.
  const auto meet = [&](std::uint64_t times) {
    arrived.fetch_add(1);
    for (int spins = 0; arrived.load() < 2 * times; ++spins) {
      if (spins > 1000) std::this_thread::yield();
    }
  };
  const auto generation_of = [](std::uint64_t round) {
    return static_cast<std::uint32_t>(round % 4000 + 1);
  };
  const auto fight = [&](std::uint64_t t) {
    for (std::uint64_t round = 0; round < k_rounds; ++round) {
      meet(3 * round + 1);
      if (!index.insert(k_hash, place_of(*region, t, generation_of(round)), k_never, k_never))
        failures.fetch_add(1);
      meet(3 * round + 2);
      if (!holds(index, k_hash, place_of(*region, t, generation_of(round)))) failures.fetch_add(1);
      meet(3 * round + 3);
      // The entries die with their generation, which frees the slots for the next round.
      if (t == 0) make_readable(*region, generation_of(round + 1));
    }
  };
  std::thread other([&] { fight(1); });
  fight(0);
  other.join();
  EXPECT_EQ(failures.load(), 0);
}

TEST(Index, NeverReplacesAnEntryOfAnotherTag) {
  const TestRegion region;
  make_readable(*region, 1);
  Index index(*region);
  // The upper half of the hash determines the first bucket, and the lowest 16 bits are the tag.
  for (std::uint64_t i = 0; i < 6; ++i) {
    ASSERT_TRUE(index.insert(
        0x5555555500000001ULL + i, place_of(*region, i), [](const RecordPlace&) { return true; },
        k_never));
  }
  for (std::uint64_t i = 0; i < 6; ++i)
    EXPECT_TRUE(holds(index, 0x5555555500000001ULL + i, place_of(*region, i))) << i;
}

}  // namespace
}  // namespace cube::cache
