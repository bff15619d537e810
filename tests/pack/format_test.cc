// The names that a pack may contain, and the places of records.
#include "cache/pack/pack_format.h"

#include <dirent.h>
#include <gtest/gtest.h>

#include "cache/pack/make/tree_names.h"
#include "cache/pack/make/tree_paths.h"

namespace cube::cache {
namespace {

TEST(PackFormat, PathsOutOfAPackAreRefused) {
  for (const char* const good : {"", "a", "a/b", "..a", "a..", ".a", "a/...", " ", "a/\n"})
    EXPECT_TRUE(is_pack_path(good)) << good;
  for (const char* const bad :
       {"/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/../b", "./a", "a/."})
    EXPECT_FALSE(is_pack_path(bad)) << bad;
  EXPECT_FALSE(is_pack_path(std::string_view("a\0b", 3)));
  EXPECT_FALSE(is_pack_path(std::string(NAME_MAX + 1, 'a')));
  std::string longest = "a";
  while (longest.size() + 2 < PATH_MAX) longest += "/a";
  EXPECT_TRUE(is_pack_path(longest));
  EXPECT_FALSE(is_pack_path(longest + "/a"));
}

TEST(PackFormat, RecordThatFitsIntoASegmentLiesInOne) {
  for (std::uint64_t fill = k_page; fill < 3 * k_pack_segment; fill += 77'760) {
    for (const std::uint64_t size : {0ULL, 1000ULL, 40'000ULL, 3'000'000ULL}) {
      const RecordPlan plan = place_record_in_pack(fill, 30, size);
      ASSERT_GE(plan.start, fill);
      ASSERT_EQ(plan.start / k_pack_segment, (plan.end - 1) / k_pack_segment)
          << fill << " " << size;
    }
    const RecordPlan large = place_record_in_pack(fill, 30, 2 * k_pack_segment);
    ASSERT_LT(large.start % k_pack_segment, k_page) << "a large one begins with its segment";
  }
}

TEST(PackFormat, BucketsHaveLessThan64SlotsOnAverage) {
  EXPECT_EQ(pack_table_bits(63), 0U);
  EXPECT_EQ(pack_table_bits(64), 1U);
  EXPECT_EQ(pack_table_bits(100'000'000), 21U);
  EXPECT_EQ(pack_bucket(~0ULL, 0), 0U);
  EXPECT_EQ(pack_bucket(~0ULL, 21), (1U << 21) - 1);
}

TEST(PackFormat, AListingIsReadAsItWasWritten) {
  TreeNames names;
  names.add("b", 2, DT_DIR);
  names.add("c", 3, DT_LNK);
  names.add("a", 1, DT_REG);
  names.sort();
  names[0].is_packed = names[2].is_packed = true;
  const std::string data = names.listing(true);
  PackListingReader reader(data);
  std::string_view name;
  PackName row{};
  ASSERT_TRUE(reader.next(name, row));
  EXPECT_EQ(name, "a");
  EXPECT_EQ(row.inode, 1U);
  EXPECT_EQ(row.type, DT_REG);
  ASSERT_TRUE(reader.next(name, row));
  EXPECT_EQ(name, "c");
  EXPECT_FALSE(reader.next(name, row));
  EXPECT_TRUE(reader.is_sound());
  EXPECT_TRUE(reader.is_complete());
}

TEST(PackFormat, ADamagedListingEndsUnsound) {
  TreeNames names;
  names.add("name", 1, DT_REG);
  names[0].is_packed = true;
  const std::string whole = names.listing(false);
  const auto is_sound = [](const std::string& data) {
    // The copy on the heap has exactly this size, so that AddressSanitizer detects a read beyond
    // it.
    const std::vector<char> exact(data.begin(), data.end());
    PackListingReader reader({exact.data(), exact.size()});
    std::string_view name;
    PackName row{};
    while (reader.next(name, row)) {
    }
    return reader.is_sound();
  };
  ASSERT_TRUE(is_sound(whole));
  EXPECT_FALSE(is_sound(whole + "x"));
  for (std::size_t n = 0; n < whole.size(); ++n) EXPECT_FALSE(is_sound(whole.substr(0, n))) << n;
  for (const char* const bad : {"..", "a/b"}) {
    TreeNames hostile;
    hostile.add(bad, 1, DT_REG);
    hostile[0].is_packed = true;
    EXPECT_FALSE(is_sound(hostile.listing(true))) << bad;
  }
}

TEST(TreePaths, ADirectorysPathsStandTogether) {
  TreePaths paths;
  for (const char* const path : {"a.b", "a/x", "b", "a", "a/x/y", "a/w", "a"}) paths.add(path);
  paths.sort();
  std::vector<std::string> sorted;
  for (std::size_t i = 0; i < paths.size(); ++i) sorted.emplace_back(paths[i]);
  EXPECT_EQ(sorted, (std::vector<std::string>{"a", "a/w", "a/x", "a/x/y", "a.b", "b"}));
  const auto range = paths.below("a", {0, paths.size()});
  EXPECT_EQ(range.from, 0U);
  EXPECT_EQ(range.to, 4U);
  const auto none = paths.below("aa", {0, paths.size()});
  EXPECT_EQ(none.from, none.to);
}

}  // namespace
}  // namespace cube::cache
