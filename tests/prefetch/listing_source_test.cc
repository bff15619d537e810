// How much of a listed directory is fetched, and in which order.
#include "prefetch/order/listing_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "prefetch/work/plan.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"

namespace cube::prefetch {
namespace {

constexpr std::uint64_t k_kib = 1024;
constexpr std::uint64_t k_size = 100 * k_kib;

ListingReads reads_of(std::uint64_t files, std::uint64_t early, std::uint64_t fetched) {
  ListingReads reads;
  reads.files = files;
  reads.read = files * k_size;
  reads.early = early * k_size;
  reads.fetched = fetched * k_size;
  return reads;
}

TEST(ListingBound, IsTwiceTheBytesReadUntilReadsFollow) {
  EXPECT_EQ(may_be_fetched(reads_of(9, 0, 0)), 18 * k_size);
  EXPECT_EQ(may_be_fetched(reads_of(9, 0, 18)), 0U);
  EXPECT_EQ(may_be_fetched(reads_of(9, 0, 30)), 0U);
  EXPECT_EQ(may_be_fetched(reads_of(1000, 499, 2000)), 0U);
  EXPECT_EQ(may_be_fetched(reads_of(12, 12, 24)), 0U) << "some files show nothing";
}

TEST(ListingBound, IsFourTimesTheBytesReadIfReadsFollow) {
  EXPECT_EQ(may_be_fetched(reads_of(16, 8, 32)), 40 * k_size) << "eight early, and 64 ahead of 16";
  EXPECT_EQ(may_be_fetched(reads_of(1000, 1000, 1000)), 4000 * k_size);
  EXPECT_EQ(may_be_fetched(reads_of(1000, 900, 4900)), 0U);
}

TEST(ListingBound, IsAtLeast64KiB) {
  ListingReads reads;
  reads.read = 2 * k_kib;
  reads.files = 2;
  EXPECT_EQ(may_be_fetched(reads), 64 * k_kib);
  reads.fetched = 60 * k_kib;
  EXPECT_EQ(may_be_fetched(reads), 4 * k_kib);
}

// A cache, a directory of files, and the files that a leader gets from it.
struct ListingSourceTest : ::testing::Test {
  tests::TempDir dir;
  tests::TestCache cache{64 << 20};
  cache::Listings listings = cache->ahead().listings();
  ListingSource source{*cache.cache};

  std::string make(const std::string& name, int files) {
    const std::string directory = dir / name;
    mkdir(directory.c_str(), 0755);
    // Creates the files out of order, because some file systems list files in the order of their
    // creation.
    for (int i = 0; i < files; ++i)
      dir.write(name + "/f" + std::to_string(1000 + i * 37 % files), "x");
    listings.note_listed(directory);
    return directory;
  }
  // Records reads as if a program had made them, but reads no bytes.
  void read(const std::string& directory, int files, std::uint64_t bytes = k_size,
            bool early = false) {
    bool asks = false;
    for (int i = 0; i < files; ++i)
      asks = listings.note_read(directory + "/" + std::to_string(i), bytes, early);
    if (asks) {
      EXPECT_TRUE(listings.post(directory));
    }
  }
  // The paths that the leader plans now.
  std::vector<PlannedFile> plan() {
    std::vector<PlannedFile> planned;
    for (PlannedFile file; source.next(file) == PathSource::Next::file; file = {})
      planned.push_back(file);
    return planned;
  }
  static void fetch(const std::vector<PlannedFile>& planned, std::uint64_t bytes = k_size) {
    for (const auto& file : planned) file.allowance->settle(file.promised_bytes, bytes, true);
  }
  // Runs until nothing more is planned.
  std::size_t fetch_all() {
    std::size_t files = 0;
    for (auto planned = plan(); !planned.empty(); planned = plan()) {
      fetch(planned);
      files += planned.size();
    }
    return files;
  }
};

TEST_F(ListingSourceTest, FetchesNothingOfADirectoryThatIsOnlyListed) {
  make("a", 100);
  EXPECT_TRUE(plan().empty());
}

TEST_F(ListingSourceTest, PlansFurtherAsReadsFollow) {
  const std::string a = make("a", 300);
  read(a, 10);
  const std::size_t first = plan().size();
  EXPECT_LE(first, 20U);
  EXPECT_GE(first, 18U);
  EXPECT_TRUE(plan().empty()) << "no more before more is read";
  read(a, 5);
  const std::size_t second = plan().size();
  EXPECT_LE(first + second, 30U);
  EXPECT_GE(second, 9U);
  read(a, 15, k_size, /*early=*/true);
  EXPECT_GE(plan().size(), 50U) << "there are four times as many ahead as were read";
  read(a, 300, k_size, /*early=*/true);
  EXPECT_GE(plan().size(), 150U);
  EXPECT_TRUE(plan().empty());
}

TEST_F(ListingSourceTest, FetchesAtMostTwiceTheBytesRead) {
  const std::string a = make("a", 300);
  read(a, 10);
  // The planned files are three times as large as the files that were read.
  const auto planned = plan();
  ASSERT_FALSE(planned.empty());
  for (const auto& file : planned) EXPECT_LE(file.most_bytes, 2 * k_size);
  fetch(planned, 3 * k_size);
  EXPECT_TRUE(plan().empty());
  read(a, 10);
  EXPECT_TRUE(plan().empty()) << "it has had more than its share";
  read(a, 100);
  EXPECT_FALSE(plan().empty());
}

// The origin was asked for each of these files without result.
TEST_F(ListingSourceTest, CountsRequestsWithoutResult) {
  const std::string a = make("a", 300);
  read(a, 10);
  std::size_t asked = 0;
  for (auto planned = plan(); !planned.empty(); planned = plan()) {
    asked += planned.size();
    fetch(planned, 0);
    ASSERT_LE(asked, 20U);
  }
}

TEST_F(ListingSourceTest, CachedFilesCostNothing) {
  const std::string a = make("a", 300);
  read(a, 10);
  std::set<std::string> given;
  for (auto planned = plan(); !planned.empty(); planned = plan()) {
    for (const auto& file : planned) {
      given.insert(file.path);
      file.allowance->settle(file.promised_bytes, 0, /*was_asked=*/false);
    }
  }
  EXPECT_EQ(given.size(), 300U);
}

TEST_F(ListingSourceTest, EachDirectoryHasItsOwnBound) {
  std::vector<std::string> directories;
  for (int d = 0; d < 10; ++d) directories.push_back(make("d" + std::to_string(d), 100));
  for (const auto& directory : directories) read(directory, 9);
  const std::size_t files = fetch_all();
  EXPECT_LE(files, 180U);
  EXPECT_GE(files, 150U);
}

// There are more directories than are kept open, and their names are not kept either. Each
// directory continues where it stopped.
TEST_F(ListingSourceTest, ContinuesInDirectoriesThatWereClosed) {
  constexpr int k_directories = 20, k_files = 40;
  std::vector<std::string> directories;
  for (int d = 0; d < k_directories; ++d)
    directories.push_back(make("d" + std::to_string(d), k_files));
  source.keep_names(0);
  std::set<std::string> given;
  std::size_t times = 0;
  for (int round = 0; round < 100 && given.size() < k_directories * k_files; ++round) {
    for (const auto& directory : directories) read(directory, 2);
    const auto planned = plan();
    for (const auto& file : planned) given.insert(file.path);
    times += planned.size();
    fetch(planned);
  }
  EXPECT_EQ(given.size(), std::size_t{k_directories * k_files});
  EXPECT_EQ(times, given.size()) << "each is given once";
}

TEST_F(ListingSourceTest, NewLeaderStaysWithinTheBound) {
  const std::string a = make("a", 300);
  read(a, 10);
  const std::size_t first = fetch_all();
  EXPECT_GE(first, 18U);
  ListingSource next_leader(*cache.cache);
  listings.begin_lead();
  read(a, 1);
  PlannedFile file;
  std::size_t more = 0;
  while (next_leader.next(file) == PathSource::Next::file) {
    file.allowance->settle(file.promised_bytes, k_size, true);
    ++more;
  }
  EXPECT_LE(first + more, 22U);
}

TEST_F(ListingSourceTest, NextFileInheritsNoBound) {
  Plan plan(*cache.cache);
  PlannedFile file;
  file.allowance = std::make_shared<Allowance>();
  file.promised_bytes = file.most_bytes = 1;
  EXPECT_EQ(plan.next(file), PathSource::Next::none_yet);
  EXPECT_EQ(file.allowance, nullptr);
  EXPECT_EQ(file.most_bytes, UINT64_MAX);
}

TEST_F(ListingSourceTest, DropsADirectoryThatIsNoLongerRead) {
  const std::string a = make("a", 300);
  read(a, 10);
  EXPECT_FALSE(plan().empty());
  auto& row = *listings.find(base::hash_path(a));
  row.used.store(row.used.load() - 2 * cache::k_listing_is_old_s);
  EXPECT_TRUE(plan().empty());
  EXPECT_EQ(row.lead.load(), 0U) << "who reads from it again posts it again";
  EXPECT_FALSE(source.is_following_reads());
}

TEST_F(ListingSourceTest, DroppedDirectoryLeavesOthers) {
  const std::string a = make("a", 300), b = make("b", 300);
  for (const auto& directory : {a, b}) read(directory, 10);
  EXPECT_FALSE(plan().empty());
  auto& row = *listings.find(base::hash_path(a));
  row.used.store(row.used.load() - 2 * cache::k_listing_is_old_s);
  for (int round = 0; round < 2; ++round) {
    read(b, 10);
    const auto planned = plan();
    ASSERT_FALSE(planned.empty());
    for (const auto& file : planned) EXPECT_TRUE(file.path.starts_with(b + "/")) << file.path;
  }
}

TEST_F(ListingSourceTest, GivesFilesByNameToAReaderByName) {
  const std::string a = make("a", 400);
  // The first twelve by name are cached.
  for (int i = 0; i < 12; ++i) {
    const std::string path = a + "/f" + std::to_string(1000 + i);
    ASSERT_TRUE(cache->open(tests::request_for(path)).pin);
  }
  read(a, 12);
  const auto planned = plan();
  ASSERT_GE(planned.size(), 20U);
  EXPECT_EQ(planned[12].path, a + "/f1012");
  EXPECT_TRUE(std::is_sorted(planned.begin(), planned.end(),
                             [](const auto& x, const auto& y) { return x.path < y.path; }));
}

TEST_F(ListingSourceTest, GivesFilesAsListedToAReaderInThatOrder) {
  const std::string a = make("a", 400);
  DirWalk walk;
  ASSERT_EQ(walk.begin(a), 0);
  std::vector<std::string> listed;
  while (walk.is_walking()) {
    if (walk.next().kind == DirWalk::FoundEntry::file) listed.push_back(walk.path());
  }
  ASSERT_FALSE(std::is_sorted(listed.begin(), listed.end()))
      << "the file system sorts, and nothing can be seen";
  for (int i = 0; i < 12; ++i)
    ASSERT_TRUE(cache->open(tests::request_for(listed[static_cast<std::size_t>(i)])).pin);
  read(a, 12);
  const auto planned = plan();
  ASSERT_GE(planned.size(), 20U);
  for (std::size_t i = 0; i < planned.size(); ++i) EXPECT_EQ(planned[i].path, listed[i]);
}

}  // namespace
}  // namespace cube::prefetch
