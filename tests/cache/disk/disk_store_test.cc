// The store: which records are found after which events, and which records are refused.
#include "cache/tier/disk/disk_store.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/child.h"
#include "tests/support/disk_content.h"

namespace cube::cache {
namespace {

using tests::append_files;
using tests::content_of;
using tests::DiskFixture;
using tests::look_for_files;
using tests::name_of;
using tests::open_store;
using tests::RamSegment;
using tests::read_back;
using tests::size_of;

TEST(DiskStore, ReturnsStoredBytes) {
  for (const bool is_direct : {true, false}) {
    DiskFixture f;
    f.options.is_direct = is_direct;
    const auto store = open_store(f.options);
    EXPECT_EQ(append_files(*store, 0, 1000).written, 1000U);
    const auto found = look_for_files(*store, 1000);
    EXPECT_EQ(found.right, 1000U);
    EXPECT_EQ(found.wrong, 0U);
    EXPECT_EQ(store->status().entries, 1000U);
    EXPECT_FALSE(read_back(*store, "/mnt/data/none"));
  }
}

TEST(DiskStore, ReturnsLargeAndEmptyFiles) {
  DiskFixture f;
  f.options.segment_bytes = 8 << 20;
  const auto store = open_store(f.options);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{40'000},
                                 std::size_t{3'000'000}, std::size_t{7'000'000}}) {
    RamSegment segment(16 << 20);
    const std::string path = "/big/" + std::to_string(size);
    ASSERT_TRUE(segment.add(path, content_of(path, size)));
    EXPECT_EQ(store->append(segment.bytes(), segment.offsets())->written, 1U);
    EXPECT_EQ(read_back(*store, path), content_of(path, size)) << size;
  }
  RamSegment segment(16 << 20);
  ASSERT_TRUE(segment.add("/too/large", content_of("", 9'000'000)));
  EXPECT_EQ(store->append(segment.bytes(), segment.offsets())->refused, 1U)
      << "larger than a segment file";
}

TEST(DiskStore, SurvivesARestart) {
  DiskFixture f;
  append_files(*open_store(f.options), 0, 500);
  // The first round uses the index of the same boot, the second has none.
  for (const bool with_index : {true, false}) {
    if (!with_index) std::filesystem::remove(f.path() + "/index");
    const auto store = open_store(f.options);
    EXPECT_EQ(look_for_files(*store, 500).right, 500U) << with_index;
    EXPECT_EQ(append_files(*store, 0, 500).there_already, 500U) << with_index;
  }
}

// Otherwise the program would end by SIGBUS.
TEST(DiskStore, ReadOutlivesAnIndexThatHasLostItsPages) {
  DiskFixture f;
  append_files(*open_store(f.options), 0, 1);
  f.options.job = 2;
  const int error = tests::run_in_child([&]() -> int {
    const auto store = open_store(f.options);
    const auto places = store->find(base::hash_path(name_of(0)));
    const auto place = *places.begin();
    if (truncate((f.path() + "/index").c_str(), 0) != 0) return 2;
    const tests::PageBuffer buffer(place.buffer_bytes());
    return store->read(place, name_of(0), {buffer.data, buffer.size}).has_value() ? 0 : 3;
  });
  EXPECT_EQ(error, 0);
}

TEST(DiskStore, DistinguishesRecordsOfThisRunFromEarlierOnes) {
  DiskFixture f;
  bool of_this_run = false;
  {
    const auto store = open_store(f.options);
    append_files(*store, 0, 10);
    read_back(*store, name_of(1), nullptr, &of_this_run);
    EXPECT_TRUE(of_this_run);
    store->distrust_all();
    read_back(*store, name_of(1), nullptr, &of_this_run);
    EXPECT_FALSE(of_this_run);
  }
  f.options.job = 2;
  {
    const auto store = open_store(f.options);
    append_files(*store, 10, 20);
    EXPECT_TRUE(read_back(*store, name_of(1), nullptr, &of_this_run));
    EXPECT_FALSE(of_this_run);
    EXPECT_TRUE(read_back(*store, name_of(11), nullptr, &of_this_run));
    EXPECT_TRUE(of_this_run);
  }
  // The same job, but the index is new, so changes in the meantime were not recorded.
  std::filesystem::remove(f.path() + "/index");
  EXPECT_TRUE(read_back(*open_store(f.options), name_of(11), nullptr, &of_this_run));
  EXPECT_FALSE(of_this_run);
}

TEST(DiskStore, SkipsStaleUnsoundAndMisplacedRecords) {
  const DiskFixture f;
  const auto store = open_store(f.options);
  RamSegment segment;
  for (std::size_t i = 0; i < 6; ++i)
    ASSERT_TRUE(segment.add(name_of(i), content_of(name_of(i), 3000)));
  segment.record(1).stale.store(Record::k_changed);
  segment.record(2).stale.store(Record::k_unconfirmed);
  segment.record(3).data_size += 1;
  auto offsets = segment.offsets();
  for (const std::uint64_t bad :
       {std::uint64_t{1}, segment.bytes().size() - 64, segment.bytes().size(), UINT64_MAX - 63})
    offsets.push_back(bad);
  const auto done = store->append(segment.bytes(), offsets);
  ASSERT_TRUE(done);
  EXPECT_EQ(done->written, 3U);
  EXPECT_EQ(done->stale, 2U);
  EXPECT_EQ(done->refused, 5U);
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_EQ(read_back(*store, name_of(i)).has_value(), i == 0 || i > 3) << i;
}

TEST(DiskStore, NewVersionReplacesTheOldOneEvenAfterARestart) {
  DiskFixture f;
  {
    const auto store = open_store(f.options);
    append_files(*store, 0, 100);
    EXPECT_EQ(append_files(*store, 0, 100, 1).written, 100U);
    EXPECT_EQ(look_for_files(*store, 100, 1).right, 100U);
    EXPECT_EQ(store->status().entries, 100U);
  }
  std::filesystem::remove(f.path() + "/index");
  EXPECT_EQ(look_for_files(*open_store(f.options), 100, 1).right, 100U);
}

TEST(DiskStore, ForgottenFilesStayForgottenAfterARestart) {
  DiskFixture f;
  {
    const auto store = open_store(f.options);
    append_files(*store, 0, 100);
    EXPECT_EQ(store->forget(name_of(7)), 1U);
    EXPECT_EQ(store->forget(name_of(7)), 0U);
    EXPECT_EQ(store->forget("/mnt/data/none"), 0U);
    const auto places = store->find(base::hash_path(name_of(9)));
    ASSERT_EQ(places.count, 1U);
    EXPECT_FALSE(store->drop(*places.begin(), name_of(8)));
    EXPECT_TRUE(store->drop(*places.begin(), name_of(9)));
    EXPECT_EQ(store->status().entries, 98U);
  }
  for (const bool with_index : {true, false}) {
    if (!with_index) std::filesystem::remove(f.path() + "/index");
    const auto store = open_store(f.options);
    EXPECT_FALSE(read_back(*store, name_of(7)));
    EXPECT_FALSE(read_back(*store, name_of(9)));
    EXPECT_EQ(look_for_files(*store, 100).right, 98U);
    EXPECT_EQ(store->status().bad_records, 0U) << "dropped is not damaged";
  }
}

TEST(DiskStore, CountsTheFilesOfADeadWriterExceptForgottenOnes) {
  const DiskFixture f;
  {
    const auto store = open_store(f.options);
    append_files(*store, 0, 100);
    EXPECT_EQ(store->forget(name_of(7)), 1U);
    store->forget_writer();
    // The file has another inode, on which no process holds a lock.
    std::filesystem::copy_file(f.segment(1), f.segment(1) + "-copy");
    std::filesystem::rename(f.segment(1) + "-copy", f.segment(1));
  }
  const auto store = open_store(f.options);
  EXPECT_EQ(store->status().entries, 99U);
  EXPECT_EQ(look_for_files(*store, 100).right, 99U);
}

TEST(DiskStore, ChangeByOneNameIsSeenByTheOthers) {
  const DiskFixture f;
  const auto store = open_store(f.options);
  RamSegment segment;
  ASSERT_TRUE(segment.add("/a/one", "same", 42));
  ASSERT_TRUE(segment.add("/a/two", "same", 42));
  ASSERT_TRUE(segment.add("/a/other", "else", 43));
  ASSERT_EQ(store->append(segment.bytes(), segment.offsets())->written, 3U);
  EXPECT_EQ(store->forget_inode(0, 42), 2U);
  EXPECT_FALSE(read_back(*store, "/a/one"));
  EXPECT_FALSE(read_back(*store, "/a/two"));
  EXPECT_EQ(read_back(*store, "/a/other"), "else");
}

TEST(DiskStore, AnotherVersionIsRefusedWithOneLine) {
  const DiskFixture f;
  append_files(*open_store(f.options), 0, 10);
  ASSERT_TRUE(tests::TempDir::write_file(f.path() + "/version", "cubeshim disk 2\n"));
  std::string why;
  const auto store = DiskStore::open(f.options, why);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().value, EPROTO);
  EXPECT_NE(why.find("'cubeshim disk 2'"), std::string::npos) << why;
  EXPECT_NE(why.find("'cubeshim disk 1'"), std::string::npos) << why;
  EXPECT_NE(why.find(f.path()), std::string::npos) << why;
  EXPECT_EQ(why.find('\n'), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(f.segment(1))) << "what is refused is left alone";
}

TEST(DiskStore, SegmentsWithoutAVersionAreRefused) {
  const DiskFixture f;
  append_files(*open_store(f.options), 0, 10);
  std::filesystem::remove(f.path() + "/version");
  std::string why;
  EXPECT_EQ(DiskStore::open(f.options, why).error().value, EPROTO);
  EXPECT_NE(why.find("version"), std::string::npos) << why;
}

TEST(DiskStore, AnotherOwnersDirectoryIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const DiskFixture f;
  { const auto store = open_store(f.options); }
  ASSERT_EQ(chown(f.path().c_str(), 12345, 0), 0);
  std::string why;
  EXPECT_EQ(DiskStore::open(f.options, why).error().value, EPERM);
  EXPECT_NE(why.find("directory of this user"), std::string::npos) << why;
}

TEST(DiskStore, ADirectoryThatOthersMayWriteToIsRefused) {
  const DiskFixture f;
  { const auto store = open_store(f.options); }
  for (const mode_t mode : {0770, 0702}) {
    ASSERT_EQ(chmod(f.path().c_str(), mode), 0);
    std::string why;
    EXPECT_EQ(DiskStore::open(f.options, why).error().value, EPERM) << why;
  }
}

TEST(DiskStore, ErrorNamesAMissingDirectory) {
  const DiskFixture f;
  std::string why;
  auto options = f.options;
  options.directory = f.dir / "none/of/these";
  EXPECT_EQ(DiskStore::open(options, why).error().value, ENOENT);
  EXPECT_NE(why.find("CUBESHIM_DISK_DIR=" + options.directory), std::string::npos) << why;
  options.directory = f.dir.write("file", "x");
  EXPECT_EQ(DiskStore::open(options, why).error().value, ENOTDIR);
  options.directory = std::string(5000, 'x');
  EXPECT_EQ(DiskStore::open(options, why).error().value, ENAMETOOLONG);
}

TEST(DiskStore, ErrorNamesABoundBelowTheLeast) {
  DiskFixture f;
  f.options.size_bound = 1 << 20;
  std::string why;
  EXPECT_EQ(DiskStore::open(f.options, why).error().value, ENOSPC);
  EXPECT_NE(why.find("1024 KiB"), std::string::npos) << why;
  EXPECT_NE(why.find("4096 KiB"), std::string::npos) << why;
}

TEST(DiskStore, ReadOnlyServesAndChangesNothing) {
  DiskFixture f;
  const auto writer = open_store(f.options);
  append_files(*writer, 0, 50);
  ASSERT_TRUE(writer->seal());
  append_files(*writer, 50, 60);
  f.options.is_read_only = true;
  const auto stamp = [&] {
    std::string all;
    for (const auto& entry : std::filesystem::directory_iterator(f.path())) {
      struct stat st {};
      EXPECT_EQ(stat(entry.path().c_str(), &st), 0);
      all += entry.path().string() + " " + std::to_string(st.st_mtim.tv_nsec) + " " +
             std::to_string(st.st_size) + "\n";
    }
    return all;
  };
  const std::string before = stamp();
  const auto reader = open_store(f.options);
  EXPECT_TRUE(reader->status().is_read_only);
  EXPECT_EQ(look_for_files(*reader, 60).right, 60U) << "what is being written, too";
  RamSegment segment;
  ASSERT_TRUE(segment.add("/a", "b"));
  EXPECT_EQ(reader->append(segment.bytes(), segment.offsets()).error().value, EROFS);
  EXPECT_EQ(reader->forget(name_of(3)), 1U);
  EXPECT_FALSE(read_back(*reader, name_of(3)));
  EXPECT_EQ(stamp(), before);
  EXPECT_TRUE(read_back(*writer, name_of(3)));
}

TEST(DiskStore, AFileSystemThatIsMountedReadOnlyServes) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const tests::TmpfsMount mount("64m");
  if (!mount.is_mounted()) GTEST_SKIP() << "no tmpfs can be mounted here";
  DiskFixture f;
  f.options.directory = mount.path();
  append_files(*open_store(f.options), 0, 50);
  ASSERT_EQ(::mount(nullptr, mount.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
  const auto store = open_store(f.options);
  EXPECT_TRUE(store->status().is_read_only);
  EXPECT_EQ(look_for_files(*store, 50).right, 50U);
}

TEST(DiskStore, RemovedDirectoryCausesMisses) {
  const DiskFixture f;
  const auto store = open_store(f.options);
  append_files(*store, 0, 100);
  std::filesystem::remove_all(f.path());
  EXPECT_EQ(look_for_files(*store, 100).missing, 100U);
  EXPECT_EQ(store->forget(name_of(1)), 1U);
  RamSegment segment;
  ASSERT_TRUE(segment.add("/a", "b"));
  EXPECT_EQ(store->append(segment.bytes(), segment.offsets()).error().value, ENOENT);
  EXPECT_EQ(store->append(segment.bytes(), segment.offsets()).error().value, ENOENT);
  EXPECT_FALSE(std::filesystem::exists(f.path())) << "it is not made again behind its owner's back";
}

TEST(DiskStore, ABufferThatDoesNotFitIsRefused) {
  const DiskFixture f;
  const auto store = open_store(f.options);
  append_files(*store, 0, 3);
  const DiskPlace place = *store->find(base::hash_path(name_of(2))).begin();
  const tests::PageBuffer buffer(place.buffer_bytes() + k_page);
  EXPECT_EQ(store->read(place, name_of(2), {buffer.data + 64, place.buffer_bytes()}).error().value,
            EINVAL);
  EXPECT_EQ(store->read(place, name_of(2), {buffer.data, place.buffer_bytes() - 1}).error().value,
            EINVAL);
  EXPECT_TRUE(store->read(place, name_of(2), {buffer.data, place.buffer_bytes()}));
  EXPECT_EQ(store->read(place, name_of(1), {buffer.data, place.buffer_bytes()}).error().value,
            ENOENT);
}

TEST(DiskStore, NoFdStaysOpen) {
  const DiskFixture f;
  const auto count = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  const auto before = count();
  const auto store = open_store(f.options);
  append_files(*store, 0, 100);
  look_for_files(*store, 100);
  EXPECT_EQ(count(), before);
}

}  // namespace
}  // namespace cube::cache
