// Building a whole index: every added entry is found, even with the smallest window, and in any of
// the tables.
#include "cache/tier/disk/index_builder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/temp_dir.h"

namespace cube::cache {
namespace {

std::uint64_t hash_of_number(std::uint64_t i) { return base::hash_bytes(&i, sizeof i); }
std::uint64_t offset_of_number(std::uint64_t i) { return 4096 + 64 * i; }

struct NewIndex {
  explicit NewIndex(std::uint64_t files, bool is_private = false)
      : index(is_private ? DiskIndex::create_private(DiskGeometry::of(files, 20))
                         : DiskIndex::create(path.c_str(), DiskGeometry::of(files, 20), 1)) {
    EXPECT_TRUE(index.has_value());
    index->row_of(3).set(3, DiskSegmentState::sealed);
  }
  // Returns the number of added entries and of passes.
  std::pair<std::uint64_t, int> build(const char* file, std::uint64_t entries,
                                      std::uint64_t window) {
    auto builder = DiskIndexBuilder::create(*index, file, window);
    EXPECT_TRUE(builder.has_value());
    for (int passes = 1;; ++passes) {
      std::uint64_t added = 0;
      for (std::uint64_t i = 0; i < entries; ++i) {
        const std::uint64_t hash = hash_of_number(i);
        added += builder->add(hash, DiskIndex::word_of(hash, 3, offset_of_number(i), 300)) ? 1 : 0;
      }
      const auto more = builder->end_pass();
      EXPECT_TRUE(more.has_value());
      if (!more || !*more) return {added, passes};
    }
  }
  std::uint64_t count_found(std::uint64_t entries) const {
    std::uint64_t found = 0;
    for (std::uint64_t i = 0; i < entries; ++i) {
      index->visit(hash_of_number(i), [&](const DiskPlace& place, std::uint64_t) {
        found += place.offset == offset_of_number(i) ? 1 : 0;
      });
    }
    return found;
  }

  tests::TempDir dir;
  std::string path = dir / "index";
  base::Result<DiskIndex> index;
};

TEST(DiskIndexBuilder, FindsEachRecordOnceWithAnyWindow) {
  for (const std::uint64_t window :
       {std::uint64_t{4096}, std::uint64_t{20'000}, DiskIndexBuilder::k_most_window}) {
    NewIndex made(5000);
    const auto [added, passes] = made.build(made.path.c_str(), 10'000, window);
    EXPECT_EQ(added, 10'000U);
    EXPECT_EQ(passes > 1, window < 100'000) << window;
    EXPECT_EQ(made.count_found(10'000), 10'000U) << window;
    EXPECT_EQ(made.index->tables(), 1U);
  }
}

TEST(DiskIndexBuilder, OverflowGoesToFurtherTables) {
  for (const bool is_private : {false, true}) {
    NewIndex made(2000, is_private);
    const auto [added, passes] =
        made.build(is_private ? nullptr : made.path.c_str(), 20'000, 64 << 10);
    EXPECT_EQ(added, 20'000U);
    EXPECT_EQ(made.index->tables(), 4U);
    EXPECT_EQ(made.count_found(20'000), 20'000U) << is_private;
  }
}

TEST(DiskIndexBuilder, AddsNothingBeyondItsRoom) {
  NewIndex made(2000);
  const std::uint64_t slots =
      (made.index->geometry().file_bytes - made.index->geometry().table_at[0]) / 8;
  const auto [added, passes] =
      made.build(made.path.c_str(), 2 * slots, DiskIndexBuilder::k_most_window);
  EXPECT_LT(added, slots);
  EXPECT_GT(added, slots * 9 / 10);
  EXPECT_EQ(made.count_found(2 * slots), added);
}

TEST(DiskIndexBuilder, AFileThatWasReplacedMeanwhileIsNotWrittenTo) {
  NewIndex made(2000);
  auto builder = DiskIndexBuilder::create(*made.index, made.path.c_str());
  ASSERT_TRUE(builder);
  ASSERT_EQ(unlink(made.path.c_str()), 0);
  made.dir.write("index", "another's");
  EXPECT_EQ(builder->end_pass().error().value, ESTALE);
  // In the end the table is full, and without its file the index cannot grow.
  std::uint64_t i = 0;
  while (builder->add(hash_of_number(i), DiskIndex::word_of(hash_of_number(i), 3, 4096, 300))) ++i;
  EXPECT_GT(i, 4000U);
  EXPECT_EQ(made.index->tables(), 1U);
}

TEST(DiskIndexBuilder, BuildsAnIndexThatCanBeChanged) {
  NewIndex made(5000);
  made.build(made.path.c_str(), 5000, DiskIndexBuilder::k_most_window);
  const std::uint64_t hash = hash_of_number(7);
  EXPECT_TRUE(made.index->remove(hash, 3, offset_of_number(7)));
  EXPECT_EQ(made.count_found(5000), 4999U);
  EXPECT_TRUE(made.index->insert(hash, DiskIndex::word_of(hash, 3, offset_of_number(7), 300)));
  EXPECT_EQ(made.count_found(5000), 5000U);
}

}  // namespace
}  // namespace cube::cache
