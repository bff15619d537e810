// Blocks of large files in the store: which blocks are found after which events, and how a change
// of the file affects its blocks.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cache/tier/disk/disk_store.h"
#include "cache/tier/disk/read_buffers.h"
#include "cache/tier/disk_tier.h"
#include "tests/support/blocks.h"
#include "tests/support/child.h"
#include "tests/support/disk_content.h"

namespace cube::cache {
namespace {

using tests::BlockFile;
using tests::BlockRecord;
using tests::DiskFixture;
using tests::open_store;
using tests::read_back;

constexpr std::uint64_t k_block = 256 << 10;

struct DiskBlockTest : testing::Test {
  DiskFixture f;
  BlockFile file{"/mnt/large", 6 * k_block + 777};
  const std::uint64_t blocks = file.blocks(k_block);

  static std::string name_of_block(const BlockFile& of, std::uint64_t number) {
    return std::string(BlockName(of.path, {k_block, number}).text());
  }
  static DiskAppended append(DiskStore& store, const BlockFile& of, std::uint64_t number) {
    const BlockRecord record(of, {k_block, number});
    const auto done = store.append(record.bytes(), record.offsets());
    EXPECT_TRUE(done);
    return done ? *done : DiskAppended{};
  }
  void append_all(DiskStore& store) const {
    for (std::uint64_t number = 0; number < blocks; ++number)
      EXPECT_EQ(append(store, file, number).written, 1U) << number;
  }
  std::uint64_t right(DiskStore& store) const {
    std::uint64_t count = 0;
    for (std::uint64_t number = 0; number < blocks; ++number)
      count +=
          read_back(store, name_of_block(file, number)) == file.bytes_of({k_block, number}) ? 1 : 0;
    return count;
  }
  // The same file, after a write to it.
  BlockFile changed() const {
    BlockFile next(file.path, file.data.size());
    next.data = tests::content_of(file.path, 2, file.data.size());
    next.stat.modified.seconds += 10;
    next.key = key_of_file(next.path, next.stat);
    return next;
  }
  void remove_index() const { std::filesystem::remove(f.path() + "/index"); }
};

TEST_F(DiskBlockTest, BlockIsReadBackAndWrittenOnce) {
  const auto store = open_store(f.options);
  append_all(*store);
  EXPECT_EQ(right(*store), blocks);
  EXPECT_EQ(append(*store, file, 2).there_already, 1U);
  EXPECT_EQ(store->status().entries, blocks);
  EXPECT_FALSE(read_back(*store, file.path)) << "its file is not there as a whole";
}

TEST_F(DiskBlockTest, BlockHasNoEntryByInode) {
  {
    const auto store = open_store(f.options);
    append_all(*store);
    tests::RamSegment segment;
    ASSERT_TRUE(segment.add("/mnt/small", "bytes", 5));
    ASSERT_EQ(store->append(segment.bytes(), segment.offsets())->written, 1U);
  }
  base::UniqueFd fd(open(f.segment(1).c_str(), O_RDONLY | O_CLOEXEC));
  const auto contents = read_footer(fd.get(), 1);
  ASSERT_TRUE(contents);
  ASSERT_EQ(contents->rows.size(), blocks + 1);
  for (std::uint64_t i = 0; i <= blocks; ++i) {
    EXPECT_EQ(contents->rows[i].has_inode(), i == blocks) << i;
    EXPECT_EQ(contents->rows[i].inode_hash, i == blocks ? base::hash_inode(0, 5) : 0) << i;
  }
}

TEST_F(DiskBlockTest, BlocksSurviveAChangeOfTheirFile) {
  DiskTier* tier = nullptr;
  {
    base::Config config =
        base::parse_config([](const char*) -> const char* { return nullptr; }).config;
    config.disk_dir = f.dir.path();
    config.disk = {.is_percent = false, .value = f.options.size_bound};
    std::string why;
    const auto opened = DiskTier::open(config, base::current_process(), why);
    ASSERT_TRUE(opened) << why;
    tier = *opened;
    tests::never_freed(tier);
  }
  for (const std::uint64_t number : {0, 1}) {
    const BlockRecord record(file, {k_block, number});
    ASSERT_TRUE(tier->offer(record.bytes(), record.offsets()));
  }
  tests::RamSegment segment;
  ASSERT_TRUE(segment.add(file.path, "bytes", file.stat.inode));
  segment.record(0).stat.device_major = 0;
  ASSERT_TRUE(tier->offer(segment.bytes(), segment.offsets()));
  EXPECT_EQ(tier->status().entries, 3U);
  // The record is removed. The blocks stay, although the changes also name their path and their
  // inode.
  FileStat stat = file.stat;
  stat.device_major = 0;
  tier->content_changed(file.path, nullptr);
  EXPECT_EQ(tier->status().entries, 2U);
  tier->content_changed(file.path, &stat);
  tier->content_changed("", &file.stat);
  tier->content_changed("/mnt/other", &stat);
  tier->tree_changed();
  EXPECT_EQ(tier->status().entries, 2U);
  struct Look final : Tier::Judge {
    Look() : Judge(RecordKind::block) {}
    Tier::Verdict judge(const Record&) override { return Tier::Verdict::taken; }
  } look;
  EXPECT_TRUE(tier->visit(name_of_block(file, 0), look));
  EXPECT_TRUE(tier->visit(name_of_block(file, 1), look));
  tier->end_offers();
}

TEST_F(DiskBlockTest, NewVersionReplacesTheOldBlock) {
  const BlockFile next = changed();
  {
    const auto store = open_store(f.options);
    append_all(*store);
    EXPECT_EQ(append(*store, next, 1).written, 1U);
    EXPECT_EQ(store->status().entries, blocks);
    EXPECT_EQ(read_back(*store, name_of_block(file, 1)), next.bytes_of({k_block, 1}));
    EXPECT_EQ(right(*store), blocks - 1);
  }
  remove_index();
  const auto store = open_store(f.options);
  EXPECT_EQ(read_back(*store, name_of_block(file, 1)), next.bytes_of({k_block, 1}));
  EXPECT_EQ(right(*store), blocks - 1);
  // The footer never changes, so it names both records. The earlier record is marked as dropped.
  const DiskPlaces places = store->find(base::hash_path(name_of_block(file, 1)));
  ASSERT_EQ(places.count, 2U);
  for (const DiskPlace& place : places) {
    const tests::PageBuffer buffer(place.buffer_bytes());
    const bool is_newest = place.is_same(*places.begin());
    EXPECT_EQ(store->read(place, name_of_block(file, 1), {buffer.data, buffer.size}).has_value(),
              is_newest)
        << place.offset;
  }
}

TEST_F(DiskBlockTest, SurvivesARestart) {
  { append_all(*open_store(f.options)); }
  // The first round uses the index of the same boot, the second one an index that is rebuilt from
  // the footers.
  for (const bool with_index : {true, false}) {
    if (!with_index) remove_index();
    const auto store = open_store(f.options);
    EXPECT_EQ(right(*store), blocks) << with_index;
    EXPECT_EQ(append(*store, file, 0).there_already, 1U) << with_index;
  }
}

TEST_F(DiskBlockTest, SurvivesTheDeathOfItsWriter) {
  // Without a footer, the store walks the records. It does so with the index that was in use when
  // they were written, and with a new index.
  for (const bool with_index : {true, false}) {
    std::filesystem::remove_all(f.path());
    ASSERT_EQ(tests::run_in_child([&] {
                // The child ends without sealing its segment.
                append_all(*open_store(f.options).release());
                return testing::Test::HasFailure() ? 1 : 0;
              }),
              0);
    {
      const base::UniqueFd fd(open(f.segment(1).c_str(), O_RDONLY | O_CLOEXEC));
      ASSERT_FALSE(read_footer(fd.get(), 1));
    }
    if (!with_index) remove_index();
    const auto store = open_store(f.options);
    EXPECT_EQ(right(*store), blocks) << with_index;
    const base::UniqueFd fd(open(f.segment(1).c_str(), O_RDONLY | O_CLOEXEC));
    const auto contents = read_footer(fd.get(), 1);
    ASSERT_TRUE(contents) << "it was sealed by whoever found it";
    for (const DiskFooterRow& row : contents->rows) EXPECT_FALSE(row.has_inode());
  }
}

TEST_F(DiskBlockTest, DamagedBlockIsDropped) {
  const auto store = open_store(f.options);
  append_all(*store);
  const auto places = store->find(base::hash_path(name_of_block(file, 3)));
  ASSERT_EQ(places.count, 1U);
  {
    std::fstream segment(f.segment(places.begin()->number),
                         std::ios::in | std::ios::out | std::ios::binary);
    segment.seekp(static_cast<std::streamoff>(places.begin()->offset + k_block / 2));
    segment.put(static_cast<char>(~file.bytes_of({k_block, 3})[0]));
    segment.put('\x5a');
    segment.put('\x5b');
  }
  int error = 0;
  EXPECT_FALSE(read_back(*store, name_of_block(file, 3), &error));
  EXPECT_EQ(error, EBADMSG);
  EXPECT_EQ(store->find(base::hash_path(name_of_block(file, 3))).count, 0U);
  EXPECT_EQ(store->status().bad_records, 1U);
  EXPECT_EQ(right(*store), blocks - 1);
  // The origin delivers it again.
  EXPECT_EQ(append(*store, file, 3).written, 1U);
  EXPECT_EQ(right(*store), blocks);
}

TEST_F(DiskBlockTest, IsDroppedWithItsSegment) {
  f.options.size_bound = 16 << 20;
  f.options.segment_bytes = 2 << 20;
  f.options.keep_free_percent = 0;
  const auto append_others = [&](DiskStore& store, int first, int last) {
    for (int i = first; i < last; ++i)
      append(store, BlockFile("/mnt/" + std::to_string(i), k_block), 0);
  };
  {
    const auto store = open_store(f.options);
    append_all(*store);
    append_others(*store, 0, 20);
  }
  // The segments of the earlier job are removed when the next one needs room.
  f.options.job = 2;
  const auto store = open_store(f.options);
  append_others(*store, 20, 60);
  ASSERT_GT(store->status().evicted, 0U);
  EXPECT_EQ(right(*store), 0U);
  for (std::uint64_t number = 0; number < blocks; ++number)
    EXPECT_EQ(store->find(base::hash_path(name_of_block(file, number))).count, 0U) << number;
}

// To allocate memory from the kernel for each block would take as long as to read the block from a
// fast disk.
TEST_F(DiskBlockTest, BlockOfTheUsualSizeReusesABuffer) {
  const auto store = open_store(f.options);
  const std::uint64_t usual =
      base::parse_config([](const char*) -> const char* { return nullptr; }).config.block;
  const BlockFile of_usual("/mnt/usual", 8 * usual);
  for (std::uint64_t number = 0; number < 8; ++number) {
    const BlockRecord record(of_usual, {usual, number});
    ASSERT_EQ(store->append(record.bytes(), record.offsets())->written, 1U);
    EXPECT_LE(store->find(base::hash_path(record.name())).begin()->buffer_bytes(),
              ReadBuffers::k_bytes)
        << number;
  }
}

TEST_F(DiskBlockTest, BlockFitsUnderTheLeastBound) {
  for (const std::uint64_t block :
       {std::uint64_t{64 << 10}, std::uint64_t{1 << 20}, std::uint64_t{2 << 20}}) {
    f.options.size_bound = 8 << 20;
    const BlockFile of_block("/mnt/" + std::string(LargePaths::k_longest - 5, 'x'), block);
    const BlockRecord record(of_block, {block, 0});
    const auto append_record = [&](DiskStore& store) {
      return store.append(record.bytes(), record.offsets())->written;
    };
    std::filesystem::remove_all(f.path());
    std::uint64_t least = 0;
    {
      const auto store = open_store(f.options);
      least = store->least_bound_for(block);
      EXPECT_EQ(least == 0, block < (1 << 20)) << block;
      EXPECT_EQ(append_record(*store), least == 0 ? 1U : 0U) << block;
    }
    if (least == 0) continue;
    std::filesystem::remove_all(f.path());
    f.options.size_bound = least;
    const auto store = open_store(f.options);
    EXPECT_EQ(store->least_bound_for(block), 0U) << block;
    EXPECT_EQ(append_record(*store), 1U) << block;
  }
  f.options.is_read_only = true;
  EXPECT_EQ(open_store(f.options)->least_bound_for(64 << 20), 0U) << "nothing is written to it";
}

}  // namespace
}  // namespace cube::cache
