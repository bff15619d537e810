// The index of the disk tier: which entries are found, how full the index can be, and which index
// files are opened.
#include "cache/tier/disk/disk_index.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <vector>

#include "cache/base/unique_fd.h"
#include "tests/support/child.h"
#include "tests/support/temp_dir.h"

namespace cube::cache {
namespace {

constexpr std::uint64_t k_boot = 77;

std::uint64_t hash_of_number(std::uint64_t i) { return base::hash_bytes(&i, sizeof i); }

struct IndexFile {
  tests::TempDir dir;
  std::string path = dir / "index";
  DiskIndex make(std::uint64_t files = 1000, std::uint64_t segments = 20) const {
    auto index = DiskIndex::create(path.c_str(), DiskGeometry::of(files, segments), k_boot);
    EXPECT_TRUE(index.has_value());
    index->row_of(3).set(3, DiskSegmentState::sealed);
    return std::move(*index);
  }
};

std::size_t count_found(const DiskIndex& index, std::uint64_t hash, std::uint64_t offset) {
  std::size_t n = 0;
  index.visit(hash, [&](const DiskPlace& place, std::uint64_t) {
    n += place.offset == offset && place.number == 3 ? 1 : 0;
  });
  return n;
}

TEST(DiskIndex, FindsInsertedEntriesUntilTheyAreRemoved) {
  const IndexFile file;
  DiskIndex index = file.make();
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const std::uint64_t offset = 4096 + i * 320;
    ASSERT_TRUE(
        index.insert(hash_of_number(i), DiskIndex::word_of(hash_of_number(i), 3, offset, 300)));
  }
  for (std::uint64_t i = 0; i < 1000; ++i)
    ASSERT_EQ(count_found(index, hash_of_number(i), 4096 + i * 320), 1U);
  EXPECT_TRUE(index.remove(hash_of_number(5), 3, 4096 + 5 * 320));
  EXPECT_FALSE(index.remove(hash_of_number(5), 3, 4096 + 5 * 320));
  EXPECT_EQ(count_found(index, hash_of_number(5), 4096 + 5 * 320), 0U);
}

TEST(DiskIndex, PlaceFitsItsRecordWithLittleSlack) {
  const IndexFile file;
  DiskIndex index = file.make();
  for (const std::uint64_t bytes : {256ULL, 1024ULL, 1025ULL, 5000ULL, 112'640ULL, 16ULL << 20,
                                    (16ULL << 20) + 1, (192ULL << 20) + 1, 256ULL << 20}) {
    const std::uint64_t hash = hash_of_number(bytes);
    ASSERT_TRUE(index.insert(hash, DiskIndex::word_of(hash, 3, 4096 + 192, bytes)));
    std::uint64_t most = 0;
    index.visit(hash, [&](const DiskPlace& place, std::uint64_t) {
      most = place.bytes_at_most;
      EXPECT_GE(place.buffer_bytes(), 192 + bytes);
      EXPECT_EQ(place.buffer_bytes() % k_page, 0U);
    });
    EXPECT_GE(most, bytes);
    EXPECT_LE(most, std::max<std::uint64_t>(1152, bytes + bytes / (bytes <= 16 << 20 ? 8 : 4)))
        << bytes;
  }
}

TEST(DiskIndex, TentativeEntryIsTakenOnceByItsWriterOrARemoval) {
  const IndexFile file;
  DiskIndex index = file.make();
  const std::uint64_t hash = hash_of_number(1);
  const std::uint64_t word = DiskIndex::word_of(hash, 3, 4096, 300);
  ASSERT_TRUE(index.insert(hash, word | DiskIndex::k_tentative));
  EXPECT_TRUE(index.confirm(hash, word));
  EXPECT_FALSE(index.confirm(hash, word)) << "it is not tentative any more";
  EXPECT_TRUE(index.remove(hash, 3, 4096));
  ASSERT_TRUE(index.insert(hash, word | DiskIndex::k_tentative));
  EXPECT_TRUE(index.remove(hash, 3, 4096));
  EXPECT_FALSE(index.confirm(hash, word)) << "it was forgotten meanwhile";
}

TEST(DiskIndex, EntriesOfASegmentThatHasLeftAreDead) {
  const IndexFile file;
  DiskIndex index = file.make();
  const std::uint64_t hash = hash_of_number(1);
  ASSERT_TRUE(index.insert(hash, DiskIndex::word_of(hash, 3, 4096, 300)));
  index.row_of(3).set(3, DiskSegmentState::leaving);
  EXPECT_EQ(count_found(index, hash, 4096), 0U);
  // The row's next segment has another number.
  const std::uint32_t next = 3 + index.geometry().row_count;
  index.row_of(next).set(next, DiskSegmentState::sealed);
  std::size_t n = 0;
  index.visit(hash, [&](const DiskPlace&, std::uint64_t) { ++n; });
  EXPECT_EQ(n, 0U);
}

TEST(DiskIndex, GrowsByTablesUntilTheLastAndStaysBelow32BytesAFile) {
  const IndexFile file;
  DiskIndex index = file.make(20'000);
  std::uint64_t entries = 0, in_first = 0;
  while (true) {
    const std::uint64_t hash = hash_of_number(entries);
    const std::uint32_t tables = index.tables();
    if (index.insert(hash, DiskIndex::word_of(hash, 3, 4096 + 64 * entries, 300))) {
      ++entries;
      continue;
    }
    if (tables == 1) in_first = entries;
    if (!index.add_table(file.path.c_str(), tables)) break;
    EXPECT_EQ(index.tables(), tables + 1);
  }
  // The first table has room for two entries of each file.
  EXPECT_GE(in_first, 2 * 20'000U);
  EXPECT_LE(index.geometry().table_at[1] - index.geometry().table_at[0], 20'000 * 24U + k_page);
  EXPECT_EQ(index.tables(), 4U);
  EXPECT_GT(entries, 8 * 40'000U);
  for (std::uint64_t i = 0; i < entries; i += 97)
    ASSERT_EQ(count_found(index, hash_of_number(i), 4096 + 64 * i), 1U) << i;
}

int open_error(const IndexFile& file, std::uint64_t boot) {
  const auto index = DiskIndex::open(file.path.c_str(), boot);
  return index ? 0 : index.error().value;
}

TEST(DiskIndex, IsRefusedAfterARebootUnlessItIsInUse) {
  const IndexFile file;
  { const DiskIndex made = file.make(); }
  EXPECT_EQ(open_error(file, k_boot), 0);
  EXPECT_EQ(open_error(file, k_boot + 1), ESTALE);
  EXPECT_EQ(open_error(file, 0), ESTALE);
  const auto user = DiskIndex::open(file.path.c_str(), k_boot);
  ASSERT_TRUE(user);
  EXPECT_EQ(open_error(file, k_boot + 1), 0);
  EXPECT_TRUE(DiskIndex::open(file.path.c_str(), k_boot)->is_shared());
}

TEST(DiskIndex, IsNotInUseOnceItsUserIsKilled) {
  const IndexFile file;
  { const DiskIndex made = file.make(); }
  tests::Gate ready;
  tests::Child user([&] {
    const auto index = DiskIndex::open(file.path.c_str(), k_boot);
    CHILD_CHECK(index.has_value());
    ready.give();
    return tests::wait_for_death();
  });
  ASSERT_TRUE(ready.take());
  EXPECT_EQ(open_error(file, 0), 0);
  user.kill();
  EXPECT_EQ(open_error(file, 0), ESTALE);
}

TEST(DiskIndex, ADamagedHeaderIsRefused) {
  const IndexFile file;
  { const DiskIndex made = file.make(); }
  const base::UniqueFd fd(::open(file.path.c_str(), O_RDWR | O_CLOEXEC));
  for (std::size_t at = 0; at < offsetof(DiskIndexHeader, tables); ++at) {
    char byte = 0;
    ASSERT_EQ(pread(fd.get(), &byte, 1, static_cast<off_t>(at)), 1);
    const char wrong = static_cast<char>(byte ^ 0x20);
    ASSERT_EQ(pwrite(fd.get(), &wrong, 1, static_cast<off_t>(at)), 1);
    EXPECT_EQ(open_error(file, k_boot), EBADMSG) << at;
    ASSERT_EQ(pwrite(fd.get(), &byte, 1, static_cast<off_t>(at)), 1);
  }
  EXPECT_EQ(open_error(file, k_boot), 0);
  ASSERT_EQ(truncate(file.path.c_str(), 8192), 0);
  EXPECT_EQ(open_error(file, k_boot), EBADMSG);
}

TEST(DiskIndex, FileTruncatedUnderItReadsAsEmpty) {
  const IndexFile file;
  DiskIndex index = file.make();
  const std::uint64_t hash = hash_of_number(1);
  ASSERT_TRUE(index.insert(hash, DiskIndex::word_of(hash, 3, 4096, 300)));
  ASSERT_EQ(count_found(index, hash, 4096), 1U);
  ASSERT_EQ(truncate(file.path.c_str(), 8192), 0);
  EXPECT_EQ(count_found(index, hash, 4096), 0U);
  ASSERT_EQ(truncate(file.path.c_str(), 0), 0);
  EXPECT_EQ(count_found(index, hash, 4096), 0U);
  EXPECT_FALSE(index.is_there());
}

TEST(DiskIndex, CorruptSlotsYieldOnlyPlacesWithinASegment) {
  const IndexFile file;
  DiskIndex index = file.make(100);
  for (std::uint32_t i = 0; i < index.geometry().row_count; ++i)
    index.row(i).word.store(hash_of_number(i));
  auto* const bytes = reinterpret_cast<std::uint64_t*>(
      reinterpret_cast<std::byte*>(&index.header()) + index.geometry().table_at[0]);
  for (std::uint64_t i = 0; i < index.geometry().bucket_count[0] * 8; ++i) {
    // The place is in a segment that has a row, because otherwise nothing would be checked.
    bytes[i] = (hash_of_number(i * 3) & ~(std::uint64_t{0x3ffff} << 22)) |
               ((i % index.geometry().row_count) << 22);
  }
  index.header().tables.store(1000);
  EXPECT_EQ(index.tables(), 4U);
  index.header().tables.store(1);
  std::size_t seen = 0;
  for (std::uint64_t i = 0; i < 200'000; ++i) {
    index.visit(hash_of_number(i), [&](const DiskPlace& place, std::uint64_t) {
      ++seen;
      ASSERT_LT(place.offset, k_most_disk_segment_bytes);
      ASSERT_LE(place.bytes_at_most, k_most_disk_segment_bytes);
    });
  }
  // The rows' states are also random. With correct states, some places are found.
  for (std::uint32_t i = 0; i < index.geometry().row_count; ++i)
    index.row(i).set(i, DiskSegmentState::sealed);
  for (std::uint64_t i = 0; i < 200'000; ++i)
    index.visit(hash_of_number(i), [&](const DiskPlace&, std::uint64_t) { ++seen; });
  EXPECT_GT(seen, 0U);
}

}  // namespace
}  // namespace cube::cache
