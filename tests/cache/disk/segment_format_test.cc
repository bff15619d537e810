// The values that a segment file's header, footer and trailer accept.
#include "cache/tier/disk/segment_format.h"

#include <gtest/gtest.h>

#include "cache/tier/disk/segment_file.h"
#include "tests/support/disk_content.h"

namespace cube::cache {
namespace {

DiskTrailer sound_trailer(std::uint64_t rows) {
  DiskTrailer t{};
  t.magic = DiskTrailer::k_magic;
  t.version = k_disk_version;
  t.number = 7;
  t.data_end = 10'048;
  t.rows_at = 12'288;
  t.row_count = rows;
  t.hash = hash_of(t);
  return t;
}
std::uint64_t file_bytes(const DiskTrailer& t) {
  return trailer_offset(t.rows_at, t.row_count) + sizeof t;
}

TEST(DiskTrailer, IsSoundOnlyAtTheEndOfItsFile) {
  for (const std::uint64_t rows : {0, 1, 2, 101}) {
    const DiskTrailer t = sound_trailer(rows);
    EXPECT_TRUE(is_sound(t, 7, file_bytes(t)));
    EXPECT_FALSE(is_sound(t, 8, file_bytes(t)));
    EXPECT_FALSE(is_sound(t, 7, file_bytes(t) + 64));
    EXPECT_FALSE(is_sound(t, 7, file_bytes(t) - 64));
  }
}

TEST(DiskTrailer, EveryFlippedBitIsFound) {
  DiskTrailer t = sound_trailer(5);
  auto* const bytes = reinterpret_cast<std::uint8_t*>(&t);
  for (std::size_t i = 0; i < sizeof t * 8; ++i) {
    bytes[i / 8] ^= static_cast<std::uint8_t>(1U << (i % 8));
    EXPECT_FALSE(is_sound(t, 7, file_bytes(sound_trailer(5)))) << i;
    bytes[i / 8] ^= static_cast<std::uint8_t>(1U << (i % 8));
  }
  EXPECT_TRUE(is_sound(t, 7, file_bytes(t)));
}

TEST(DiskTrailer, RefusesOverflowingNumbersDespiteAMatchingHash) {
  const auto refused = [](auto change) {
    DiskTrailer t = sound_trailer(1);
    const std::uint64_t bytes = file_bytes(t);
    change(t);
    t.hash = hash_of(t);
    return !is_sound(t, 7, bytes);
  };
  EXPECT_TRUE(refused([](DiskTrailer& t) { t.row_count = 1ULL << 59; }));
  EXPECT_TRUE(refused([](DiskTrailer& t) { t.row_count = UINT64_MAX; }));
  EXPECT_TRUE(refused([](DiskTrailer& t) { t.rows_at = UINT64_MAX - 4095; }));
  EXPECT_TRUE(refused([](DiskTrailer& t) { t.data_end = t.rows_at + 64; }));
  EXPECT_TRUE(refused([](DiskTrailer& t) { t.data_end = 0; }));
  EXPECT_TRUE(refused([](DiskTrailer& t) { t.version = k_disk_version + 1; }));
}

TEST(DiskFooterRow, MustLieBetweenHeaderPageAndEndOfData) {
  const auto within = [](std::uint64_t offset, std::uint64_t bytes, std::uint64_t data_end) {
    DiskFooterRow row{};
    row.offset = static_cast<std::uint32_t>(offset / 64);
    row.size = static_cast<std::uint32_t>(bytes / 64);
    return is_within(row, data_end);
  };
  EXPECT_TRUE(within(4096, 320, 4416));
  EXPECT_FALSE(within(4096, 320, 4352));
  EXPECT_FALSE(within(4032, 320, 8192));
  EXPECT_FALSE(within(4096, 192, 8192)) << "shorter than a header";
  EXPECT_FALSE(within(std::uint64_t{UINT32_MAX} * 64, std::uint64_t{UINT32_MAX} * 64, 8192));
}

// A segment file in the state in which a writer leaves it, either sealed or not.
struct OneFile {
  tests::DiskFixture fixture;
  explicit OneFile(bool sealed) {
    const auto store = tests::open_store(fixture.options);
    EXPECT_EQ(tests::append_files(*store, 0, 50).written, 50U);
    if (!sealed) store->forget_writer();
  }
  base::UniqueFd open() const {
    return base::UniqueFd(::open(fixture.segment(1).c_str(), O_RDWR | O_CLOEXEC));
  }
};

TEST(SegmentFile, FooterMatchesAWalkOfTheRecords) {
  const OneFile file(true);
  const auto footer = read_footer(file.open().get(), 1);
  const auto walk = walk_records(file.open().get(), 1);
  ASSERT_TRUE(footer && walk);
  ASSERT_EQ(footer->rows.size(), 50U);
  ASSERT_EQ(walk->rows.size(), 50U);
  for (std::size_t i = 0; i < 50; ++i) {
    EXPECT_EQ(std::memcmp(&footer->rows[i], &walk->rows[i], sizeof(DiskFooterRow)), 0) << i;
    EXPECT_EQ(footer->rows[i].path_hash, base::hash_path(tests::name_of(i)));
  }
  EXPECT_EQ(footer->data_end, walk->data_end);
}

TEST(SegmentFile, IsRefusedWithAnotherNumber) {
  const OneFile file(true);
  EXPECT_EQ(read_footer(file.open().get(), 2).error().value, EBADMSG);
  EXPECT_EQ(walk_records(file.open().get(), 2).error().value, EBADMSG);
}

TEST(SegmentFile, WithoutAFooterHasNone) {
  const OneFile file(false);
  EXPECT_EQ(read_footer(file.open().get(), 1).error().value, EBADMSG);
  const auto walk = walk_records(file.open().get(), 1);
  ASSERT_TRUE(walk);
  EXPECT_EQ(walk->rows.size(), 50U);
}

TEST(SegmentFile, AFlippedBitInAnyRowOfTheFooterIsFound) {
  const OneFile file(true);
  const auto fd = file.open();
  const auto footer = read_footer(fd.get(), 1);
  ASSERT_TRUE(footer);
  const off_t begin = static_cast<off_t>(base::round_up(footer->data_end, k_page));
  const std::size_t bytes = footer->rows.size() * sizeof(DiskFooterRow);
  // Even after this change, most rows are within the file, so only the hash over the rows reveals
  // it.
  for (std::size_t i = 0; i < bytes; ++i) {
    unsigned char byte = 0;
    const off_t at = begin + static_cast<off_t>(i);
    ASSERT_EQ(pread(fd.get(), &byte, 1, at), 1);
    const auto flipped = static_cast<unsigned char>(byte ^ (1U << (i % 8)));
    ASSERT_EQ(pwrite(fd.get(), &flipped, 1, at), 1);
    const auto damaged = read_footer(fd.get(), 1);
    EXPECT_FALSE(damaged) << i;
    ASSERT_EQ(pwrite(fd.get(), &byte, 1, at), 1);
  }
  EXPECT_TRUE(read_footer(fd.get(), 1));
}

TEST(SegmentFile, WalkEndsAtTheFirstRecordWithWrongData) {
  const OneFile file(false);
  const auto before = walk_records(file.open().get(), 1);
  ASSERT_TRUE(before);
  const std::uint64_t in_data =
      std::uint64_t{before->rows[20].offset + before->rows[20].size - 2} * 64;
  char byte = 0;
  const auto fd = file.open();
  ASSERT_EQ(pread(fd.get(), &byte, 1, static_cast<off_t>(in_data)), 1);
  byte = static_cast<char>(byte ^ 1);
  ASSERT_EQ(pwrite(fd.get(), &byte, 1, static_cast<off_t>(in_data)), 1);
  const auto after = walk_records(fd.get(), 1);
  ASSERT_TRUE(after);
  EXPECT_EQ(after->rows.size(), 20U);
}

TEST(DiskFormat, RecordFetchedWithinAStepOfItsTimesIsRacy) {
  constexpr std::int64_t k_now = 1'700'000'000;
  const auto racy = [](std::int64_t modified_ago, std::int64_t changed_ago,
                       std::uint32_t changed_ns) {
    Record record{};
    record.fetched_ns = static_cast<std::uint64_t>(k_now) * 1'000'000'000ULL;
    record.stat.modified.seconds = k_now - modified_ago;
    record.stat.changed = {k_now - changed_ago, changed_ns, 0};
    return may_be_racy(record);
  };
  EXPECT_FALSE(racy(10, 10, 0));
  EXPECT_TRUE(racy(1, 10, 0));
  EXPECT_TRUE(racy(1, 10, 1));
  EXPECT_TRUE(racy(1000, 1, 0)) << "an mtime that was put back, and a clock of whole seconds";
  EXPECT_TRUE(racy(1000, -5, 0));
  EXPECT_FALSE(racy(1000, 1, 123'456'789)) << "a fine clock tells of the next change";
}

TEST(DiskFormat, EachTimeAndRightDistinguishesVersions) {
  FileStat stat{};
  stat.inode = 7;
  stat.size = 100;
  stat.mode = S_IFREG | 0644;
  stat.modified.seconds = stat.changed.seconds = 1'600'000'000;
  FileStat other = stat;
  // This number can differ after each mount.
  other.device_minor = 9;
  EXPECT_TRUE(is_same_version(stat, other));
  const auto differs = [&](auto change) {
    FileStat changed = stat;
    change(changed);
    return !is_same_version(stat, changed);
  };
  EXPECT_TRUE(differs([](FileStat& s) { ++s.inode; }));
  EXPECT_TRUE(differs([](FileStat& s) { ++s.size; }));
  EXPECT_TRUE(differs([](FileStat& s) { ++s.modified.nanoseconds; }));
  EXPECT_TRUE(differs([](FileStat& s) { ++s.changed.nanoseconds; }));
  EXPECT_TRUE(differs([](FileStat& s) { s.mode = S_IFREG | 0600; }));
}

}  // namespace
}  // namespace cube::cache
