// A reader finds the existing paths of a pack, and no other paths.
#include <dirent.h>

#include <atomic>
#include <cstring>
#include <set>
#include <thread>

#include "cache/pack/pack_slots.h"
#include "tests/pack/sample_tree.h"

namespace cube::cache {
namespace {

using tests::SampleTree;

struct PackReaderTest : testing::Test {
  SampleTree tree;
  std::unique_ptr<PackReader> pack;
  void SetUp() override {
    tree.fill();
    ASSERT_EQ(tree.make(), "");
    ASSERT_TRUE(tree.skipped.empty());
    pack = tree.open();
    ASSERT_NE(pack, nullptr);
  }
};

TEST_F(PackReaderTest, EveryFileHasItsBytesAndItsStat) {
  for (const auto& [path, content] : tree.files) {
    const auto entry = pack->find(path);
    ASSERT_TRUE(entry) << path;
    EXPECT_EQ(entry->kind, RecordKind::file);
    int error = 0;
    EXPECT_EQ(tests::read_all(*pack, *entry, error), content) << path;
    EXPECT_EQ(error, 0);
    const auto stat = stat_path(AT_FDCWD, (tree.root + "/" + path).c_str(), 0);
    ASSERT_TRUE(stat);
    EXPECT_TRUE(is_same_entry(entry->stat, *stat)) << path;
    EXPECT_EQ(entry->stat.mode, stat->mode);
  }
}

TEST_F(PackReaderTest, GetsAWholeRecordByOneRead) {
  for (const auto& [path, content] : tree.files) {
    const auto slot = pack->locate(base::hash_path(path));
    ASSERT_TRUE(slot);
    std::vector<std::uint64_t> room(slot->bytes / 8);
    auto* const bytes = reinterpret_cast<std::byte*>(room.data());
    const auto entry = pack->read_record(*slot, path, bytes);
    ASSERT_TRUE(entry) << path;
    EXPECT_EQ(
        std::string_view(reinterpret_cast<char*>(bytes + (entry->data_offset - entry->offset)),
                         entry->data_size),
        content);
    const auto other = pack->read_record(*slot, path + "x", bytes);
    ASSERT_FALSE(other);
    EXPECT_EQ(other.error().value, ENOENT);
  }
}

TEST_F(PackReaderTest, GetsManyRecordsByOneRead) {
  const std::uint64_t begin = pack->header().records_begin,
                      all = pack->header().records_end - begin;
  std::vector<std::uint64_t> room(all / 8 + 1);
  auto* const bytes = reinterpret_cast<std::byte*>(room.data());
  const auto got = pack->read_span(begin, all + 4096, bytes);
  ASSERT_TRUE(got);
  EXPECT_EQ(*got, all) << "nothing after the last record";
  const auto none = pack->read_span(begin + all, 1, bytes);
  ASSERT_TRUE(none);
  EXPECT_EQ(*none, 0U);
  const auto error_of = [&](const PackSlot& slot, std::string_view path, std::size_t n) {
    const auto entry = PackReader::check_record(slot, path, bytes + (slot.offset - begin), n);
    return entry ? 0 : entry.error().value;
  };
  for (const auto& [path, content] : tree.files) {
    const auto slot = pack->locate(base::hash_path(path));
    ASSERT_TRUE(slot);
    std::byte* const at = bytes + (slot->offset - begin);
    const auto entry = PackReader::check_record(*slot, path, at, slot->bytes);
    ASSERT_TRUE(entry) << path;
    EXPECT_EQ(std::string_view(reinterpret_cast<char*>(at + (entry->data_offset - slot->offset)),
                               entry->data_size),
              content);
    EXPECT_EQ(error_of(*slot, path + "x", slot->bytes), ENOENT) << "it is another's";
    EXPECT_EQ(error_of(*slot, path, slot->bytes - 1), EBADMSG) << "not all of it is there";
    if (content.empty()) continue;
    at[entry->data_offset - slot->offset] ^= std::byte{1};
    EXPECT_EQ(error_of(*slot, path, slot->bytes), EBADMSG) << "it is damaged";
  }
}

TEST_F(PackReaderTest, DoesNotFindMissingPaths) {
  for (const char* const path :
       {"b", "a/", "/a/x", "sizes/2", "a/x/y", "empty/nested/x", "odd/new"}) {
    const auto entry = pack->find(path);
    ASSERT_FALSE(entry) << path;
    EXPECT_EQ(entry.error().value, ENOENT) << path;
  }
}

TEST_F(PackReaderTest, DirectoriesListTheirEntries) {
  for (const auto& [path, expected] : std::map<std::string, std::set<std::string>>{
           {"", {"a", "a.b", "broken", "empty", "many", "odd", "sizes"}},
           {"odd", {"new\nline", "\xff\xfe", " space", "-dash", "link"}},
           {"empty", {"nested"}},
           {"empty/nested", {}}}) {
    const auto entry = pack->find(path);
    ASSERT_TRUE(entry) << path;
    ASSERT_EQ(entry->kind, RecordKind::directory);
    int error = 0;
    const std::string data = tests::read_all(*pack, *entry, error);
    PackListingReader listing(data);
    std::set<std::string> names;
    std::string_view name;
    PackName row{};
    while (listing.next(name, row)) {
      names.emplace(name);
      const auto stat =
          stat_path(AT_FDCWD, (tree.root + "/" + path + "/" + std::string(name)).c_str(),
                    AT_SYMLINK_NOFOLLOW);
      ASSERT_TRUE(stat);
      EXPECT_EQ(row.inode, stat->inode) << name;
      EXPECT_EQ(row.type, IFTODT(stat->mode)) << name;
    }
    EXPECT_TRUE(listing.is_sound());
    EXPECT_TRUE(listing.is_complete());
    EXPECT_EQ(names, expected) << path;
  }
}

TEST_F(PackReaderTest, LinksKeepTheirTargets) {
  int error = 0;
  EXPECT_EQ(tests::read_all(*pack, *pack->find("odd/link"), error), "../a/x");
  EXPECT_EQ(tests::read_all(*pack, *pack->find("broken"), error), "nowhere");
  EXPECT_EQ(pack->find("broken")->kind, RecordKind::link);
}

TEST_F(PackReaderTest, AScanGivesEveryEntryInTheOrderOfThePack) {
  PackScan scan = pack->scan();
  PackEntry entry;
  std::string_view path;
  std::vector<std::string> paths;
  while (scan.next(entry, path) == PackScan::Next::record) paths.emplace_back(path);
  EXPECT_EQ(scan.next(entry, path), PackScan::Next::end);
  EXPECT_EQ(paths.size(), pack->header().entries);
  EXPECT_EQ(pack->header().files, tree.files.size());
  EXPECT_EQ(pack->header().links, 2U);
  ASSERT_GT(paths.size(), 10U);
  EXPECT_EQ(paths[0], "a/x");
  EXPECT_EQ(paths[1], "a.b");
  const std::vector<std::string> last(paths.end() - 6, paths.end());
  EXPECT_EQ(last, (std::vector<std::string>{"a", "empty", "many", "odd", "sizes", ""}))
      << "after all that lies in them";
  const auto d0 = std::find(paths.begin(), paths.end(), "many/d0");
  ASSERT_GE(paths.end() - d0, 7);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(d0[i], "many/d" + std::to_string(i));
  EXPECT_TRUE(pack->index_is_sound());
}

TEST_F(PackReaderTest, ManyThreadsLookUpAtTheSameTime) {
  std::atomic<std::uint64_t> found{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (const auto& [path, content] : tree.files) {
        const auto entry = pack->find(path);
        int error = 0;
        if (entry && tests::read_all(*pack, *entry, error) == content) ++found;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(found, 4 * tree.files.size());
}

TEST(PackSlots, MoreThanFitInMemoryAreSorted) {
  PackSlots slots("/tmp");
  constexpr std::uint64_t k_count = 200'001;
  for (std::uint64_t i = 0; i < k_count; ++i) {
    const std::uint64_t hash = base::hash_bytes(&i, sizeof i);
    ASSERT_TRUE(slots.add({hash, i, 1}));
  }
  const auto sorted = slots.sorted();
  ASSERT_TRUE(sorted);
  ASSERT_EQ(sorted->size(), k_count);
  EXPECT_TRUE(std::is_sorted(sorted->begin(), sorted->end()));
  std::uint64_t sum = 0;
  for (const auto& slot : *sorted) sum += slot.offset;
  EXPECT_EQ(sum, k_count * (k_count - 1) / 2) << "each is there once";
}

}  // namespace
}  // namespace cube::cache
