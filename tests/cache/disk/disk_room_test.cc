// Room on the disk: the bound, the share of the disk that stays free, the order of eviction, and a
// full disk.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "cache/tier/disk/disk_store.h"
#include "tests/support/disk_content.h"

namespace cube::cache {
namespace {

using tests::append_files;
using tests::DiskFixture;
using tests::look_for_files;
using tests::name_of;
using tests::open_store;
using tests::read_back;

std::uint64_t bytes_in(const std::string& directory) {
  std::uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    struct stat st {};
    if (stat(entry.path().c_str(), &st) == 0)
      bytes += static_cast<std::uint64_t>(st.st_blocks) * 512;
  }
  return bytes;
}

TEST(DiskRoom, ABoundOf10MBIsKept) {
  DiskFixture f;
  f.options.size_bound = 10 << 20;
  const auto store = open_store(f.options);
  for (std::size_t i = 0; i < 4000; i += 100) {
    append_files(*store, i, i + 100);
    ASSERT_LE(bytes_in(f.path()), (10U << 20) + (64U << 10)) << "directory and version included";
    ASSERT_LE(store->status().used, 10U << 20);
  }
  EXPECT_GT(store->status().used, 8U << 20) << "and it is used";
}

TEST(DiskRoom, ALowerBoundIsKeptFromTheStart) {
  DiskFixture f;
  f.options.size_bound = 20 << 20;
  f.options.job = 1;
  append_files(*open_store(f.options), 0, 6000);
  ASSERT_GT(bytes_in(f.path()), 12U << 20);
  f.options.size_bound = 10 << 20;
  f.options.job = 2;
  const auto store = open_store(f.options);
  EXPECT_LE(bytes_in(f.path()), (10U << 20) + (64U << 10));
  EXPECT_GT(store->status().entries, 100U) << "no more than it takes";
  EXPECT_LE(store->status().used, 10U << 20);
  EXPECT_EQ(look_for_files(*store, 6000).wrong, 0U);
}

TEST(DiskRoom, KeepsRecordsOfThisJob) {
  DiskFixture f;
  f.options.size_bound = 10 << 20;
  const auto store = open_store(f.options);
  append_files(*store, 0, 4000);
  const std::size_t kept = store->status().entries;
  EXPECT_GT(kept, 100U);
  EXPECT_EQ(store->status().evicted, 0U);
  EXPECT_EQ(look_for_files(*store, kept).right, kept) << "the first ones, not the last";
}

TEST(DiskRoom, LaterJobReplacesTheLeastRecentlyUsedSegments) {
  DiskFixture f;
  f.options.size_bound = 10 << 20;
  {
    const auto store = open_store(f.options);
    append_files(*store, 0, 4000);
  }
  // The first two files are the youngest, and the next job reads from the third on.
  struct timespec times[2]{};
  for (unsigned n = 1; n < 100; ++n) {
    times[0].tv_sec = times[1].tv_sec =
        n <= 2 ? 1'600'000'000 : 1'500'000'000 + static_cast<long>(n);
    utimensat(AT_FDCWD, f.segment(n).c_str(), times, 0);
  }
  std::filesystem::remove(f.path() + "/index");
  f.options.job = 2;
  const auto store = open_store(f.options);
  const std::size_t total = store->status().entries;
  std::size_t in_third = 0;
  while (store->find(base::hash_path(name_of(in_third))).begin()->number != 3) ++in_third;
  ASSERT_TRUE(read_back(*store, name_of(in_third)));
  struct stat touched {};
  ASSERT_EQ(stat(f.segment(3).c_str(), &touched), 0);
  EXPECT_GT(touched.st_mtim.tv_sec, 1'600'000'000) << "the touch is there after a restart";
  EXPECT_EQ(append_files(*store, 100'000, 100'150).written, 150U);
  EXPECT_GE(store->status().evicted, 1U);
  EXPECT_LT(store->status().entries, total + 150);
  EXPECT_FALSE(std::filesystem::exists(f.segment(4))) << "the oldest";
  for (const unsigned n : {1, 2, 3}) EXPECT_TRUE(std::filesystem::exists(f.segment(n))) << n;
  // Entries of the removed files are not found.
  for (std::size_t i = 0; i < 4000; ++i) {
    for (const DiskPlace& place : store->find(base::hash_path(name_of(i))))
      EXPECT_TRUE(std::filesystem::exists(f.segment(place.number)));
  }
}

TEST(DiskRoom, AShareOfTheFileSystemStaysFree) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const tests::TmpfsMount mount("40m");
  if (!mount.is_mounted()) GTEST_SKIP() << "no tmpfs can be mounted here";
  DiskFixture f;
  f.options.directory = mount.path();
  f.options.keep_free_percent = 50;
  f.options.segment_bytes = 1 << 20;
  const auto store = open_store(f.options);
  append_files(*store, 0, 5000);
  EXPECT_GT(store->status().used, 15U << 20);
  EXPECT_LE(bytes_in(mount.path() + "/cubeshim-" + std::to_string(geteuid()) + "-default"),
            21U << 20);
}

TEST(DiskRoom, FullDiskAddsNothingAndKeepsExistingRecords) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const tests::TmpfsMount mount("16m");
  if (!mount.is_mounted()) GTEST_SKIP() << "no tmpfs can be mounted here";
  DiskFixture f;
  f.options.directory = mount.path();
  f.options.size_bound = 64 << 20;
  f.options.segment_bytes = 1 << 20;
  f.options.keep_free_percent = 0;
  const auto store = open_store(f.options);
  EXPECT_EQ(append_files(*store, 0, 50).written, 50U);
  mount.fill();
  testing::internal::CaptureStderr();
  append_files(*store, 50, 1000);
  append_files(*store, 50, 1000);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_NE(said.find("is full"), std::string::npos) << said;
  tests::RamSegment segment;
  ASSERT_TRUE(segment.add("/more", std::string(1'000'000, 'x')));
  EXPECT_EQ(store->append(segment.bytes(), segment.offsets()).error().value, ENOSPC);
  EXPECT_EQ(look_for_files(*store, 50).right, 50U);
  EXPECT_EQ(look_for_files(*store, 1000).wrong, 0U);
}

TEST(DiskRoom, OpenFailsOnAFullDisk) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const tests::TmpfsMount mount("8m");
  if (!mount.is_mounted()) GTEST_SKIP() << "no tmpfs can be mounted here";
  DiskFixture f;
  f.options.directory = mount.path();
  { const auto store = open_store(f.options); }
  std::filesystem::remove(mount.path() + "/cubeshim-" + std::to_string(geteuid()) +
                          "-default/index");
  mount.fill();
  std::string why;
  EXPECT_EQ(DiskStore::open(f.options, why).error().value, ENOSPC);
  EXPECT_NE(why.find(mount.path()), std::string::npos) << why;
}

}  // namespace
}  // namespace cube::cache
