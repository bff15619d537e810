// The record format: where a record is stored, and when it is valid.
#include "cache/record/record.h"

#include <gtest/gtest.h>

#include <climits>
#include <cstring>
#include <vector>

#include "cache/base/hash.h"
#include "cache/record/record_hash.h"

namespace cube::cache {
namespace {

constexpr std::uint64_t k_sizes[] = {
    0, 1, 64, 1000, k_mappable_from - 1, k_mappable_from, k_mappable_from + 1, 100'001};
constexpr std::uint64_t k_mappable_sizes[] = {k_mappable_from, k_mappable_from + 1, 100'001};

// A page-aligned stretch of memory with one record.
struct Sample {
  alignas(k_page) std::byte bytes[64 << 10];
  RecordPlan plan;

  Sample(std::string_view path, std::size_t size, std::uint64_t fill = 0) {
    std::memset(bytes, 0xee, sizeof bytes);
    plan = plan_record(fill, path.size(), size);
    EXPECT_LE(plan.end, sizeof bytes);
    for (std::size_t i = 0; i < size; ++i) bytes[plan.data + i] = static_cast<std::byte>(i * 7);
    FileStat stat{};
    stat.size = size;
    stat.inode = 42;
    stat.mode = S_IFREG | 0640;
    write_record(bytes, plan,
                 {.path = path,
                  .stat = stat,
                  .physical = true,
                  .fetched_ns = 5'000'000'001,
                  .verified_ns = 9});
  }
  Record& record() { return *reinterpret_cast<Record*>(bytes + plan.start); }
  bool sound() { return header_is_sound(record(), plan.end - plan.start); }
};

TEST(RecordPlan, KeepsToItsAlignmentAtAnyFill) {
  for (std::uint64_t fill = 0; fill < 9000; fill += 61) {
    for (const std::uint64_t path : {1ULL, 63ULL, 64ULL, 255ULL, 4095ULL}) {
      for (const std::uint64_t size : k_sizes) {
        const RecordPlan plan = plan_record(fill, path, size);
        ASSERT_GE(plan.start, fill);
        ASSERT_EQ(plan.start % k_record_alignment, 0U);
        ASSERT_EQ(plan.data % k_record_alignment, 0U);
        ASSERT_EQ(plan.end % k_record_alignment, 0U);
        ASSERT_GE(plan.data, plan.start + sizeof(Record) + path + 1)
            << "no room for the path's zero";
        ASSERT_GE(plan.end, plan.data + size);
        ASSERT_LT(plan.data - plan.start, sizeof(Record) + path + 1 + 64);
      }
    }
  }
}

TEST(RecordPlan, DataOf32KiBBeginsAndEndsOnAPage) {
  for (std::uint64_t fill = 0; fill < 9000; fill += 61) {
    for (const std::uint64_t size : k_mappable_sizes) {
      const RecordPlan plan = plan_record(fill, 50, size);
      ASSERT_EQ(plan.data % k_page, 0U);
      ASSERT_EQ(plan.end % k_page, 0U);
      ASSERT_LT(plan.end - plan.data - size, k_page);
    }
  }
}

TEST(RecordPlan, ASmallFileCanBeLaidOutForMapping) {
  for (const std::uint64_t size : {std::uint64_t{1}, std::uint64_t{5000}}) {
    const RecordPlan plan = plan_record(64, 50, size, RecordShape::mappable);
    EXPECT_TRUE(plan.mappable);
    EXPECT_EQ(plan.data % k_page, 0U);
    EXPECT_EQ(plan.end % k_page, 0U);
    EXPECT_FALSE(plan_record(64, 50, size).mappable);
  }
  EXPECT_TRUE(plan_record(64, 50, k_mappable_from).mappable);
}

TEST(RecordPlan, SmallFilesTakeLittleMoreThanTheyHold) {
  const RecordPlan plan = plan_record(0, 40, 100);
  EXPECT_EQ(plan.start, 0U);
  EXPECT_EQ(plan.end, 320U + 128U);
}

TEST(Record, HoldsTheGivenContent) {
  Sample sample("/a/b", 1000);
  const Record& r = sample.record();
  EXPECT_EQ(r.kind, RecordKind::file);
  EXPECT_EQ(r.path(), "/a/b");
  EXPECT_STREQ(r.path_text(), "/a/b");
  EXPECT_EQ(r.data_size, 1000U);
  EXPECT_EQ(r.record_size, sample.plan.end - sample.plan.start);
  EXPECT_EQ(r.stat.inode, 42U);
  EXPECT_TRUE(r.is_physical());
  EXPECT_FALSE(r.is_mappable());
  EXPECT_EQ(r.stale.load(), Record::k_unconfirmed);
  EXPECT_EQ(r.verified_ns.load(), 9U);
  EXPECT_EQ(r.data(), sample.bytes + sample.plan.data);
  EXPECT_EQ(r.data_hash, base::hash_bytes(r.data(), 1000));
}

TEST(Record, PaddingIsZeroAroundPathAndData) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{77}, std::size_t{k_mappable_from},
                                 std::size_t{k_mappable_from + 5}}) {
    Sample sample("/some/path", size, 128);
    const auto all_zero = [&](std::uint64_t from, std::uint64_t to) {
      for (; from < to; ++from) {
        if (sample.bytes[from] != std::byte{0}) return false;
      }
      return true;
    };
    EXPECT_TRUE(all_zero(sample.plan.start + sizeof(Record) + 10, sample.plan.data)) << size;
    EXPECT_TRUE(all_zero(sample.plan.data + size, sample.plan.end)) << size;
    EXPECT_EQ(sample.bytes[sample.plan.start - 1], std::byte{0xee}) << "wrote before its place";
    EXPECT_EQ(sample.bytes[sample.plan.end], std::byte{0xee}) << "wrote past its place";
  }
}

TEST(Record, IsSoundAsWritten) {
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{40'000}}) {
    Sample sample("/a/b/c.jpg", size, 64);
    EXPECT_TRUE(sample.sound()) << size;
    EXPECT_TRUE(data_is_sound(sample.record()));
  }
}

TEST(Record, EveryFlippedBitOfHeaderAndPathIsFound) {
  const std::string path = "/mnt/data/n01440764/x.jpg";
  Sample sample(path, 300);
  std::vector<std::size_t> bytes;
  for (std::size_t i = 0; i < sizeof(Record); ++i) {
    const bool mark = i >= offsetof(Record, stale) && i < offsetof(Record, data_hash);
    if (!mark) bytes.push_back(i);
  }
  for (std::size_t i = 0; i < path.size(); ++i) bytes.push_back(sizeof(Record) + i);
  for (const std::size_t at : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const auto flip = static_cast<std::byte>(1 << bit);
      sample.bytes[sample.plan.start + at] ^= flip;
      ASSERT_FALSE(sample.sound()) << "byte " << at << " bit " << bit;
      sample.bytes[sample.plan.start + at] ^= flip;
    }
  }
  EXPECT_TRUE(sample.sound());
}

TEST(Record, MarksAreOutsideTheHash) {
  Sample sample("/a", 10);
  sample.record().stale.store(1);
  sample.record().verified_ns.store(77);
  EXPECT_TRUE(sample.sound());
  EXPECT_TRUE(sample.record().is_stale());
}

TEST(Record, TruncatedRoomIsFound) {
  Sample sample("/a/b", 1000);
  const std::uint64_t whole = sample.plan.end - sample.plan.start;
  for (std::uint64_t room = 0; room < whole; ++room)
    ASSERT_FALSE(header_is_sound(sample.record(), room)) << room;
  EXPECT_TRUE(header_is_sound(sample.record(), whole));
}

TEST(Record, ZerosAndNoiseAreNotSound) {
  alignas(64) std::byte bytes[8192] = {};
  EXPECT_FALSE(header_is_sound(*reinterpret_cast<Record*>(bytes), sizeof bytes));
  std::memset(bytes, 0xff, sizeof bytes);
  EXPECT_FALSE(header_is_sound(*reinterpret_cast<Record*>(bytes), sizeof bytes));
}

TEST(Record, AHeaderThatPointsOutsideIsRefusedBeforeItsPathIsRead) {
  // At the very end of accessible memory, so that ASan detects a read beyond it.
  const std::size_t room = sizeof(Record) + 64;
  auto* const bytes = static_cast<std::byte*>(std::aligned_alloc(64, room));
  std::memset(bytes, 0, room);
  auto& record = *reinterpret_cast<Record*>(bytes);
  record.magic = Record::k_magic;
  record.version = Record::k_version;
  record.record_size = room;
  for (const std::uint32_t length : {64U, 1000U, static_cast<unsigned>(PATH_MAX) - 1,
                                     static_cast<unsigned>(PATH_MAX), UINT32_MAX}) {
    record.path_length = length;
    for (const std::uint32_t offset :
         {0U, 256U, 320U, static_cast<unsigned>(sizeof(Record)) + length + 1, UINT32_MAX}) {
      record.data_offset = offset;
      EXPECT_FALSE(header_is_sound(record, room));
    }
  }
  std::free(bytes);
}

TEST(Record, EveryFlippedByteOfTheDataIsFound) {
  Sample sample("/a", 500);
  for (std::size_t i = 0; i < 500; ++i) {
    sample.bytes[sample.plan.data + i] ^= std::byte{0x10};
    ASSERT_FALSE(data_is_sound(sample.record())) << i;
    sample.bytes[sample.plan.data + i] ^= std::byte{0x10};
  }
  EXPECT_TRUE(data_is_sound(sample.record()));
}

}  // namespace
}  // namespace cube::cache
