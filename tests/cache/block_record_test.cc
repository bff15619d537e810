// A block of a large file as a record: its name, its bytes, and the versions of the file for which
// it is valid.
#include "cache/tier/block_record.h"
#include "cache/record/record_hash.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cache/base/hash.h"
#include "tests/support/blocks.h"

namespace cube::cache {
namespace {

using tests::BlockRecord;
using Verdict = Tier::Verdict;

constexpr std::uint64_t k_block = 64 << 10, k_second = 1'000'000'000;
const tests::BlockFile& sample_file() {
  static const tests::BlockFile file("/mnt/large", 2 * k_block + 34'465);
  return file;
}

std::string name_of_block(std::string_view path, const BlockPlace& place) {
  return std::string(BlockName(path, place).text());
}

TEST(BlockPlace, LastBlockEndsWithTheFile) {
  EXPECT_EQ((BlockPlace{k_block, 0}).bytes(100'000), k_block);
  EXPECT_EQ((BlockPlace{k_block, 1}).bytes(100'000), 100'000 - k_block);
  EXPECT_EQ((BlockPlace{k_block, 1}).bytes(2 * k_block), k_block);
  EXPECT_EQ((BlockPlace{k_block, 2}).bytes(2 * k_block), 0U);
  EXPECT_EQ((BlockPlace{k_block, 3}).bytes(100'000), 0U);
  EXPECT_EQ((BlockPlace{k_block, 1ULL << 33}).begin(), 1ULL << 49);
}

TEST(BlockName, IdentifiesFileAndBlock) {
  EXPECT_EQ(name_of_block("/mnt/f", {1 << 20, 3}), "/mnt/f//1048576/3");
  EXPECT_EQ(name_of_block("/mnt/f", {4096, 0}), "/mnt/f//4096/0");
  EXPECT_EQ(name_of_block("/mnt/f", {UINT64_MAX, UINT64_MAX}),
            "/mnt/f//18446744073709551615/18446744073709551615");
}

TEST(BlockName, IsEmptyForAnOverlongPath) {
  // Tests the longest path for which LargePaths has room.
  const std::string long_path(LargePaths::k_longest, 'x');
  EXPECT_EQ(name_of_block(long_path, {UINT64_MAX, UINT64_MAX}).size(), long_path.size() + 43);
  EXPECT_EQ(name_of_block(std::string(1024 - 43, 'x'), {4096, 1}).size(), 1024 - 43 + 8);
  EXPECT_EQ(name_of_block(std::string(1024 - 42, 'x'), {4096, 1}), "");
  EXPECT_EQ(name_of_block(std::string(5000, 'x'), {4096, 1}), "");
}

TEST(BlockRecord, HoldsTheBytesOfItsBlockAndIsNotStale) {
  for (const std::uint64_t number : {0, 1, 2}) {
    for (const std::uint64_t fill : {0, 64, 5000}) {
      const BlockPlace place{k_block, number};
      const BlockRecord record(sample_file().path, place, sample_file().stat,
                               sample_file().bytes_of(place), 1'700'000'000'123, fill);
      EXPECT_GE(record.plan().start, fill);
      EXPECT_TRUE(header_is_sound(*record, record.plan().end - record.plan().start) &&
                  data_is_sound(*record));
      EXPECT_EQ(record->kind, RecordKind::block);
      EXPECT_EQ(record->path(), "/mnt/large//65536/" + std::to_string(number));
      EXPECT_EQ(tests::bytes_of(*record), sample_file().bytes_of(place));
      EXPECT_EQ(record->data_hash, base::hash_bytes(sample_file().bytes_of(place).data(),
                                                    sample_file().bytes_of(place).size()));
      EXPECT_TRUE(record->stat.is_unchanged_since(sample_file().stat));
      EXPECT_EQ(record->fetched_ns, 1'700'000'000'123U);
      EXPECT_FALSE(record->is_stale());
      const std::byte* const end = record->data() + record->data_size;
      EXPECT_TRUE(std::all_of(end, record.bytes().data() + record.bytes().size(),
                              [](std::byte b) { return b == std::byte{0}; }));
    }
  }
}

TEST(BlockRecord, MatchesOnlyItsBlockOfItsVersion) {
  const FileStat& stat = sample_file().stat;
  const BlockPlace middle{k_block, 1}, last{k_block, 2};
  const BlockRecord record(sample_file(), middle), short_record(sample_file(), last);
  EXPECT_EQ(compare_block(*record, stat, middle), Verdict::taken);
  EXPECT_EQ(compare_block(*short_record, stat, last), Verdict::taken);
  // The sizes of the record and of this block differ.
  EXPECT_EQ(compare_block(*record, stat, last), Verdict::outdated);
  EXPECT_EQ(compare_block(*short_record, stat, middle), Verdict::outdated);
  EXPECT_EQ(compare_block(*record, stat, {2 * k_block, 0}), Verdict::outdated);
  const auto verdict_of = [&](void (*change)(FileStat&)) {
    FileStat other = stat;
    change(other);
    return compare_block(*record, other, middle);
  };
  EXPECT_EQ(verdict_of([](FileStat& s) { s.modified.seconds += 1; }), Verdict::outdated);
  EXPECT_EQ(verdict_of([](FileStat& s) { s.modified.nanoseconds += 1; }), Verdict::outdated);
  EXPECT_EQ(verdict_of([](FileStat& s) { s.changed.nanoseconds += 1; }), Verdict::outdated);
  EXPECT_EQ(verdict_of([](FileStat& s) { s.inode += 1; }), Verdict::outdated);
  EXPECT_EQ(verdict_of([](FileStat& s) { s.size += 1; }), Verdict::outdated);
  EXPECT_EQ(verdict_of([](FileStat& s) { s.mode ^= 0444; }), Verdict::outdated);
  EXPECT_EQ(verdict_of([](FileStat& s) { s.user += 1; }), Verdict::outdated);
  // Another mount changes the device, and a read changes the access time.
  EXPECT_EQ(verdict_of([](FileStat& s) { s.device_minor += 1; }), Verdict::taken);
  EXPECT_EQ(verdict_of([](FileStat& s) { s.accessed.seconds += 1; }), Verdict::taken);
}

TEST(BlockRecord, IsRefusedIfTheFileMayHaveChangedWithinItsTimestampGranularity) {
  const BlockPlace place{k_block, 0};
  const auto verdict_of = [&](FileStat stat, std::uint64_t fetched_ns) {
    const BlockRecord record(sample_file().path, place, stat, sample_file().bytes_of(place),
                             fetched_ns);
    return compare_block(*record, stat, place);
  };
  FileStat stat = sample_file().stat;
  const auto modified_ns = static_cast<std::uint64_t>(stat.modified.seconds) * k_second;
  EXPECT_EQ(verdict_of(stat, modified_ns + k_second), Verdict::refused);
  EXPECT_EQ(verdict_of(stat, modified_ns + 2 * k_second), Verdict::taken);
  // The mtime was set back, and the clock of the ctime is coarse.
  stat.changed = {stat.modified.seconds + 100, 0, 0};
  EXPECT_EQ(verdict_of(stat, modified_ns + 101 * k_second), Verdict::refused);
  EXPECT_EQ(verdict_of(stat, modified_ns + 102 * k_second), Verdict::taken);
  // The record is removed from the tier if the file has changed since. It is kept if the reader has
  // an earlier version open.
  FileStat later = stat;
  later.changed.nanoseconds += 1;
  const BlockRecord record(sample_file().path, place, stat, sample_file().bytes_of(place),
                           modified_ns);
  EXPECT_EQ(compare_block(*record, later, place), Verdict::outdated);
  EXPECT_EQ(compare_block(*record, sample_file().stat, place), Verdict::refused);
}

TEST(BlockRecord, FileRecordOfTheSameNameDoesNotMatch) {
  const BlockPlace place{k_block, 0};
  const BlockRecord record(sample_file(), place);
  record->kind = RecordKind::file;
  EXPECT_EQ(compare_block(*record, sample_file().stat, place), Verdict::outdated);
}

}  // namespace
}  // namespace cube::cache
