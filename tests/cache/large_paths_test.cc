// The paths of large files in the region. A path is found by the key with which it was recorded,
// even if other processes write to its row.
#include "cache/region/large/large_paths.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/blocks.h"
#include "tests/support/child.h"
#include "tests/support/effort.h"
#include "tests/support/sanitizers.h"

namespace cube::cache {
namespace {

// Words of a row: when it was noted, the stat, the length of the path, the path.
constexpr std::size_t k_noted_word = 0,
                      k_length_word = 1 + sizeof(FileStat) / sizeof(std::uint64_t),
                      k_path_word = k_length_word + 1;
constexpr std::size_t k_ways = 8;

struct NamedFile {
  std::string path;
  FileStat stat;
  FileKey key;
  explicit NamedFile(std::string name, std::uint64_t inode = 7)
      : path(std::move(name)), stat(tests::old_stat_for(path, 1 << 20)) {
    stat.inode = inode;
    key = key_of_file(path, stat);
  }
};

struct LargePathsTest : testing::Test {
  tests::TestRegion region{24 * tests::k_mib};
  LargePaths names{*region};
  const std::uint32_t row_count = region->layout().large_path_rows();

  std::vector<LargePathRow*> rows_of(const FileKey& key) const {
    std::vector<LargePathRow*> found;
    for (std::uint32_t i = 0; i < row_count; ++i) {
      LargePathRow& row = region->large_path_row(i);
      if (row.tag.load() == (key.version[0] | 1)) found.push_back(&row);
    }
    return found;
  }
  bool finds(const NamedFile& file) const {
    LargePaths::Entry name;
    if (!names.find(file.key, name)) return false;
    EXPECT_EQ(name.path(), file.path);
    EXPECT_TRUE(name.stat.is_unchanged_since(file.stat));
    return true;
  }
  bool note(const NamedFile& file) { return names.note(file.key, file.path, file.stat); }
  // Returns files that compete for the same rows.
  std::vector<NamedFile> rivals(std::size_t count) const {
    std::vector<NamedFile> found;
    for (std::uint64_t inode = 1; found.size() < count; ++inode) {
      // The paths have all lengths, so that the words of two paths differ everywhere.
      NamedFile file(
          "/mnt/" + std::string(1 + inode * 37 % 700, static_cast<char>('a' + inode % 26)), inode);
      if (file.key.version[1] % row_count == 5) found.push_back(std::move(file));
    }
    return found;
  }
};

TEST_F(LargePathsTest, NameIsFoundOnlyByItsKey) {
  const NamedFile file("/mnt/a"), other("/mnt/b"), next_version("/mnt/a", 8);
  EXPECT_FALSE(finds(file));
  ASSERT_TRUE(note(file));
  EXPECT_TRUE(finds(file));
  EXPECT_FALSE(finds(other));
  EXPECT_FALSE(finds(next_version));
  // Keys that lead to the same row and have the same tag.
  LargePaths::Entry name;
  FileKey forged = file.key;
  forged.version[1] += row_count;
  EXPECT_FALSE(names.find(forged, name));
  forged = file.key;
  forged.path ^= 1;
  EXPECT_FALSE(names.find(forged, name));
  ASSERT_TRUE(note(other));
  EXPECT_TRUE(finds(file) && finds(other));
}

TEST_F(LargePathsTest, TornRowIsNotFoundAndIsRewritten) {
  const NamedFile file("/mnt/a/file/of/some/length");
  ASSERT_TRUE(note(file));
  // The first word tested holds the inode, the second the path.
  for (const std::size_t word : {std::size_t{1}, k_path_word}) {
    ASSERT_EQ(rows_of(file.key).size(), 1U);
    rows_of(file.key)[0]->words[word].fetch_xor(1);
    EXPECT_FALSE(finds(file)) << word;
    ASSERT_TRUE(note(file));
    EXPECT_TRUE(finds(file)) << word;
    EXPECT_EQ(rows_of(file.key).size(), 1U) << "it took another row";
  }
}

TEST_F(LargePathsTest, CorruptLengthFindsNothing) {
  const NamedFile file("/mnt/a");
  for (const std::uint64_t length :
       {std::uint64_t{0}, std::uint64_t{1}, LargePaths::k_longest, LargePaths::k_longest + 1,
        std::uint64_t{UINT32_MAX}, UINT64_MAX}) {
    ASSERT_TRUE(note(file));
    ASSERT_EQ(rows_of(file.key).size(), 1U);
    rows_of(file.key)[0]->words[k_length_word].store(length);
    EXPECT_FALSE(finds(file)) << length;
  }
  ASSERT_TRUE(note(file));
  EXPECT_TRUE(finds(file));
}

TEST_F(LargePathsTest, PathThatIsTooLongIsRefused) {
  const NamedFile longest(std::string(LargePaths::k_longest, 'x')),
      longer(std::string(LargePaths::k_longest + 1, 'x'));
  EXPECT_TRUE(note(longest));
  EXPECT_TRUE(finds(longest));
  EXPECT_FALSE(note(longer));
  EXPECT_FALSE(finds(longer));
  EXPECT_TRUE(rows_of(longer.key).empty());
}

TEST_F(LargePathsTest, OldestRowIsReplacedIfNoneIsFree) {
  const auto files = rivals(k_ways + 2);
  const auto found = [&] {
    std::string text;
    for (const NamedFile& file : files) text += finds(file) ? '1' : '0';
    return text;
  };
  for (std::size_t i = 0; i < k_ways; ++i) {
    ASSERT_TRUE(note(files[i]));
    // The last file noted has the oldest time, the first file the newest.
    rows_of(files[i].key)[0]->words[k_noted_word].store(100 - i);
  }
  EXPECT_EQ(found(), "1111111100");
  ASSERT_TRUE(note(files[k_ways]));
  EXPECT_EQ(found(), "1111111010");
  // A file that is noted again is no longer the oldest.
  ASSERT_TRUE(note(files[k_ways - 2]));
  ASSERT_TRUE(note(files[k_ways + 1]));
  EXPECT_EQ(found(), "1111101011");
}

// There are twice as many files as rows for them, so each note uses a row to which another process
// may be writing.
TEST_F(LargePathsTest, ConcurrentWritersShowNoWrongName) {
  const auto files = rivals(2 * k_ways);
  const int rounds = tests::k_tsan ? 2'000 : tests::rounds(20'000, 200'000);
  tests::Gate ready, go;
  const auto work = [&](std::uint64_t seed) {
    return tests::Child([&, seed] {
      Region* const own = tests::attach(region.options);
      CHILD_CHECK(own != nullptr);
      LargePaths theirs(*own);
      ready.give();
      CHILD_CHECK(go.take());
      std::uint64_t random = seed;
      for (int i = 0; i < rounds; ++i) {
        random = random * 6364136223846793005ULL + 1442695040888963407ULL;
        const NamedFile& noted = files[(random >> 33) % files.size()];
        CHILD_CHECK(theirs.note(noted.key, noted.path, noted.stat));
        for (const NamedFile& file : files) {
          LargePaths::Entry name;
          if (!theirs.find(file.key, name)) continue;
          CHILD_CHECK(name.path() == file.path && name.stat.is_unchanged_since(file.stat));
        }
      }
      return 0;
    });
  };
  tests::Child first = work(1), second = work(2);
  ASSERT_TRUE(ready.take(2));
  go.give(2);
  EXPECT_EQ(first.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
  for (const NamedFile& file : files) {
    ASSERT_TRUE(note(file));
    EXPECT_TRUE(finds(file)) << "a row that was torn stays so";
  }
}

}  // namespace
}  // namespace cube::cache
