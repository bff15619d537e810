// The directories that programs have listed. All processes of the node share them.
#include "cache/region/listings.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/attached_child.h"
#include "tests/support/sanitizers.h"
#include "tests/support/tracee.h"

namespace cube::cache {
namespace {

using tests::Child;
using tests::k_mib;
using tests::TestRegion;
using tests::Tracee;

constexpr std::uint64_t k_size = 10'000;

bool is_known(const Listings& listings, const std::string& directory) {
  return listings.find(base::hash_path(directory)) != nullptr;
}

// Returns whether the last of `files` reads asks for a post.
bool read_files(Listings listings, const std::string& directory, int files) {
  bool asks = false;
  for (int i = 0; i < files; ++i)
    asks = listings.note_read(directory + "/f" + std::to_string(i), k_size, false);
  return asks;
}

TEST(Listings, AreKnownToProcessesThatComeLater) {
  const TestRegion region;
  Child lister = tests::attached_child(region.options,
                                       [](Region& mine) { Listings(mine).note_listed("/data/a"); });
  lister.kill();
  Child reader = tests::attached_child(region.options, [](Region& mine) {
    CHILD_CHECK(is_known(Listings(mine), "/data/a"));
    CHILD_CHECK(!is_known(Listings(mine), "/data"));
    CHILD_CHECK(read_files(Listings(mine), "/data/a", 8));
    return 0;
  });
  const ListedRow* const row = Listings(*region).find(base::hash_path("/data/a"));
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->files.load(), 8U);
  EXPECT_EQ(row->read_kib.load(), 8U * 10);
  EXPECT_EQ(row->early_kib.load(), 0U);
}

TEST(Listings, AskForAPostWhenFileAfterFileIsRead) {
  const TestRegion region;
  Listings listings(*region);
  for (const char* const directory : {"/data/a", "/data/b"}) listings.note_listed(directory);
  EXPECT_FALSE(read_files(listings, "/data/other", 20)) << "was not listed";
  EXPECT_FALSE(read_files(listings, "/data/a", 7)) << "a look at some files";
  EXPECT_TRUE(read_files(listings, "/data/a", 1));
  EXPECT_FALSE(read_files(listings, "/data/b", 1)) << "one file of it";
  EXPECT_TRUE(read_files(listings, "/data/b", 1)) << "the program does read what it lists";
  EXPECT_FALSE(listings.note_read("nowhere", 1, false));
}

TEST(Listings, ArePostedToEachLeaderOnce) {
  const TestRegion region;
  Listings listings(*region);
  listings.note_listed("/data/a");
  ASSERT_TRUE(read_files(listings, "/data/a", 8));
  ASSERT_TRUE(listings.post("/data/a"));
  EXPECT_FALSE(read_files(listings, "/data/a", 1));
  std::string taken;
  ASSERT_TRUE(listings.take(taken));
  EXPECT_EQ(taken, "/data/a");
  EXPECT_FALSE(listings.take(taken));
  listings.begin_lead();
  EXPECT_TRUE(read_files(listings, "/data/a", 1)) << "another leads, who knows nothing of it";
  listings.take_charge(*listings.find(base::hash_path("/data/a")));
  EXPECT_FALSE(read_files(listings, "/data/a", 1));
  listings.give_back(*listings.find(base::hash_path("/data/a")));
  EXPECT_TRUE(read_files(listings, "/data/a", 1)) << "the leader has let it go";
  EXPECT_FALSE(listings.post("/data/b")) << "was not listed";
  EXPECT_FALSE(listings.post("/" + std::string(2000, 'x'))) << "too long";
}

TEST(Listings, ReadListingsStayBeyondTheBound) {
  const TestRegion region;
  Listings listings(*region);
  const std::uint32_t rows = region->layout().listed_rows();
  constexpr int k_read = 100;
  const auto name = [](const char* kind, std::uint32_t i) {
    return std::string("/data/") + kind + std::to_string(i);
  };
  for (int i = 0; i < k_read; ++i) {
    listings.note_listed(name("read", static_cast<std::uint32_t>(i)));
    read_files(listings, name("read", static_cast<std::uint32_t>(i)), 2);
  }
  for (std::uint32_t i = 0; i < 4 * rows; ++i) listings.note_listed(name("listed", i));
  int kept = 0;
  for (int i = 0; i < k_read; ++i)
    kept += is_known(listings, name("read", static_cast<std::uint32_t>(i))) ? 1 : 0;
  EXPECT_EQ(kept, k_read);
  EXPECT_TRUE(is_known(listings, name("listed", 4 * rows - 1)));
  std::uint32_t known = 0;
  for (std::uint32_t i = 0; i < 4 * rows; ++i)
    known += is_known(listings, name("listed", i)) ? 1 : 0;
  EXPECT_LE(known, rows);
  EXPECT_GE(known, rows / 2) << "the room is used";
  std::printf("%u directories are known in %zu KiB\n", rows, rows * sizeof(ListedRow) / 1024);
}

// The row belonged to another directory, so its counts are zero.
TEST(Listings, CountFromZeroInAReusedRow) {
  const TestRegion region;
  Listings listings(*region);
  const std::uint32_t rows = region->layout().listed_rows();
  for (std::uint32_t i = 0; i < rows; ++i) {
    region->listed_row(i).hash.store(0x1234'0000'0000ULL + i);
    region->listed_row(i).fetched_kib.store(7);
    region->listed_row(i).files.store(9);
  }
  listings.note_listed("/data/a");
  const ListedRow* const row = listings.find(base::hash_path("/data/a"));
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->files.load(), 0U);
  EXPECT_EQ(row->fetched_kib.load(), 0U);
}

TEST(Listings, StartOverAfterALongTimeWithoutReads) {
  const TestRegion region;
  Listings listings(*region);
  listings.note_listed("/data/a");
  read_files(listings, "/data/a", 8);
  ListedRow& row = *listings.find(base::hash_path("/data/a"));
  listings.note_listed("/data/a");
  EXPECT_EQ(row.files.load(), 8U) << "a second epoch";
  row.used.store(row.used.load() - 2 * k_listing_is_old_s);
  EXPECT_TRUE(listings.is_old(row));
  listings.note_listed("/data/a");
  EXPECT_EQ(row.files.load(), 0U);
  EXPECT_FALSE(listings.is_old(row));
}

TEST(Listings, FreeTheSlotsOfADeadPoster) {
  const TestRegion region;
  Listings listings(*region);
  listings.note_listed("/data/a");
  Child poster = tests::attached_child(region.options, [](Region& mine) {
    for (std::uint32_t i = 0; i < k_listing_slots; ++i)
      mine.listing_slot(i).state.store(mine.own_slot() + 2);
  });
  EXPECT_FALSE(listings.post("/data/a")) << "all slots are being written";
  poster.kill();
  region->reap();
  EXPECT_TRUE(listings.post("/data/a"));
}

TEST(Listings, APathOfTwoWritersIsPassedBy) {
  const TestRegion region;
  Listings listings(*region);
  for (const char* const directory : {"/data/a", "/data/b"}) {
    listings.note_listed(directory);
    ASSERT_TRUE(listings.post(directory));
  }
  region->listing_slot(0).path[6] = 'b';
  std::string taken;
  ASSERT_TRUE(listings.take(taken));
  EXPECT_EQ(taken, "/data/b");
  EXPECT_FALSE(listings.take(taken));
  EXPECT_EQ(region->listing_slot(0).state.load(), 0U);
}

// kill -9 between the instructions of list, read and post. The next process lists, reads and posts
// as if the killed process had never run.
TEST(Listings, SurviveADeathAtAnyInstruction) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  const TestRegion region;
  Listings listings(*region);
  // No row is free, so each listing replaces another listing.
  for (std::uint32_t i = 0; i < region->layout().listed_rows(); ++i) {
    region->listed_row(i).hash.store(1 + i);
    region->listed_row(i).fetched_kib.store(7);
  }
  constexpr int k_kills = 80;
  int deaths = 0, posted = 0, unposted = 0;
  long length = 0;
  for (int k = -1; k < k_kills; ++k) {
    const std::string directory = "/data/" + std::to_string(k);
    Tracee child([&] {
      Region* const mine = tests::attach(region.options);
      CHILD_CHECK(mine != nullptr);
      Listings own(*mine);
      const std::string file = directory + "/f";
      raise(SIGSTOP);
      own.note_listed(directory);
      own.note_read(file, k_size, false);
      own.post(directory);
      raise(SIGSTOP);
      return 0;
    });
    ASSERT_TRUE(child.to_stop());
    if (k < 0) {
      while (child.step() && !child.is_at_raise()) ++length;
      ASSERT_GT(length, 100);
    }
    // Half of the kills are spread evenly. The other half hit the last part, which posts.
    const long part = length / 5,
               at = k % 2 == 0 ? length * k / k_kills : length - part + part * k / k_kills;
    for (long i = 0; i < at && child.step() && !child.is_at_raise(); ++i) {
    }
    child.kill();
    ++deaths;
    region->reap();
    std::string taken;
    const bool was_posted = listings.take(taken);
    if (was_posted) {
      EXPECT_EQ(taken, directory);
    }
    (was_posted ? posted : unposted) += 1;
    if (const ListedRow* const row = listings.find(base::hash_path(directory)); row != nullptr) {
      EXPECT_EQ(row->fetched_kib.load(), 0U);
    }
    listings.note_listed(directory);
    ASSERT_TRUE(is_known(listings, directory)) << k;
    ASSERT_TRUE(read_files(listings, directory, 8) || was_posted) << k;
    ASSERT_TRUE(listings.post(directory)) << k;
    if (listings.take(taken)) {
      EXPECT_EQ(taken, directory);
    }
    for (std::uint32_t i = 0; i < k_listing_slots; ++i)
      ASSERT_EQ(region->listing_slot(i).state.load(), 0U) << k;
  }
  std::printf("%ld instructions, %d deaths: posted by %d of the dead\n", length, deaths, posted);
  EXPECT_GT(posted, 0);
  EXPECT_GT(unposted, 0);
}

}  // namespace
}  // namespace cube::cache
