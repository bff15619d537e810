// Several processes use one directory. They write at the same time, are killed while they write,
// read while segment files are removed, and change files that are being written.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "cache/tier/disk/disk_store.h"
#include "tests/support/child.h"
#include "tests/support/disk_content.h"

namespace cube::cache {
namespace {

using tests::append_files;
using tests::Child;
using tests::content_of;
using tests::DiskFixture;
using tests::Gate;
using tests::look_for_files;
using tests::name_of;
using tests::open_store;
using tests::RamSegment;
using tests::read_back;
using tests::size_of;

int write_files(const DiskFixture& f, std::size_t first, std::size_t last, bool then_die) {
  const auto store = open_store(f.options);
  CHILD_CHECK(store != nullptr);
  CHILD_CHECK(append_files(*store, first, last).written == last - first);
  if (then_die) raise(SIGKILL);
  return 0;
}

TEST(DiskWriters, ConcurrentWritersSeeEachOthersFiles) {
  DiskFixture f;
  f.options.segment_bytes = 1 << 20;
  const auto reader = open_store(f.options);
  Child one([&] { return write_files(f, 0, 1000, false); });
  Child two([&] { return write_files(f, 1000, 2000, false); });
  EXPECT_EQ(one.wait(), 0);
  EXPECT_EQ(two.wait(), 0);
  const auto found = look_for_files(*reader, 2000);
  EXPECT_EQ(found.right, 2000U);
  EXPECT_EQ(found.wrong, 0U);
  EXPECT_EQ(append_files(*reader, 0, 2000).there_already, 2000U);
}

TEST(DiskWriters, ConcurrentWritesOfTheSameFilesStayRight) {
  DiskFixture f;
  f.options.segment_bytes = 1 << 20;
  const auto body = [&] {
    const auto store = open_store(f.options);
    CHILD_CHECK(store != nullptr);
    append_files(*store, 0, 500);
    return 0;
  };
  Child one(body), two(body);
  EXPECT_EQ(one.wait(), 0);
  EXPECT_EQ(two.wait(), 0);
  EXPECT_EQ(look_for_files(*open_store(f.options), 500).right, 500U);
}

TEST(DiskWriters, KilledWriterLosesNoPublishedRecord) {
  DiskFixture f;
  EXPECT_EQ(Child([&] { return write_files(f, 0, 300, true); }).wait(), -SIGKILL);
  for (const bool with_index : {true, false}) {
    if (!with_index) std::filesystem::remove(f.path() + "/index");
    EXPECT_EQ(look_for_files(*open_store(f.options), 300).right, 300U) << with_index;
  }
}

TEST(DiskWriters, KillAtAnyMomentLeavesNoWrongByte) {
  DiskFixture f;
  f.options.size_bound = 10 << 20;
  f.options.segment_bytes = 1 << 20;
  for (int round = 0; round < 30; ++round) {
    f.options.job = static_cast<std::uint64_t>(round) + 1;
    Gate going;
    Child writer([&] {
      const auto store = open_store(f.options);
      CHILD_CHECK(store != nullptr);
      for (std::size_t i = 0;; i = (i + 20) % 1000) {
        append_files(*store, i, i + 20, static_cast<unsigned>(round));
        going.give();
      }
      return 0;
    });
    ASSERT_TRUE(going.take(1 + round % 7));
    writer.kill();
    if (round % 3 == 0) std::filesystem::remove(f.path() + "/index");
    const auto store = open_store(f.options);
    ASSERT_NE(store, nullptr);
    for (std::size_t i = 0; i < 1000; ++i) {
      const auto got = read_back(*store, name_of(i));
      if (!got) continue;
      bool is_one_of_them = false;
      for (int v = round; v >= 0 && !is_one_of_them; --v)
        is_one_of_them = *got == content_of(name_of(i), size_of(i), static_cast<unsigned>(v));
      ASSERT_TRUE(is_one_of_them) << round << " " << i;
    }
    ASSERT_EQ(store->status().bad_records, 0U) << round;
  }
}

TEST(DiskWriters, LeavesAFileToItsLivingWriter) {
  DiskFixture f;
  Gate written, go_on;
  Child writer([&] {
    const auto store = open_store(f.options);
    CHILD_CHECK(append_files(*store, 0, 50).written == 50);
    written.give();
    CHILD_CHECK(go_on.take());
    CHILD_CHECK(append_files(*store, 50, 100).written == 50);
    return 0;
  });
  ASSERT_TRUE(written.take());
  {
    const auto other = open_store(f.options);
    EXPECT_EQ(look_for_files(*other, 50).right, 50U);
    EXPECT_EQ(append_files(*other, 100, 150).written, 50U);
  }
  go_on.give();
  EXPECT_EQ(writer.wait(), 0);
  std::filesystem::remove(f.path() + "/index");
  EXPECT_EQ(look_for_files(*open_store(f.options), 150).right, 150U);
}

TEST(DiskWriters, AForkedChildDoesNotHoldItsParentsFile) {
  DiskFixture f;
  Gate forked, finish;
  Child parent([&] {
    const auto store = open_store(f.options);
    CHILD_CHECK(append_files(*store, 0, 50).written == 50);
    // This child survives if its parent is killed.
    if (fork() == 0) {
      store->forget_writer();
      forked.give();
      _exit(finish.take() ? 0 : 1);
    }
    return tests::wait_for_death();
  });
  ASSERT_TRUE(forked.take());
  const auto before = open_store(f.options);
  EXPECT_NE(std::filesystem::file_size(f.segment(1)), 0U);
  const auto whole = std::filesystem::file_size(f.segment(1));
  parent.kill();
  const auto after = open_store(f.options);
  EXPECT_LT(std::filesystem::file_size(f.segment(1)), whole)
      << "it was sealed, and the rest given back";
  EXPECT_EQ(look_for_files(*after, 50).right, 50U);
  finish.give();
}

TEST(DiskWriters, ReadersDuringEvictionGetRightBytesOrNone) {
  DiskFixture f;
  f.options.size_bound = 8 << 20;
  f.options.segment_bytes = 1 << 20;
  append_files(*open_store(f.options), 0, 500);
  f.options.job = 2;
  const auto store = open_store(f.options);
  std::atomic<bool> done{false}, has_looked{false};
  std::atomic<std::size_t> wrong{0}, right{0};
  std::thread reader([&] {
    auto options = f.options;
    // The reader's job reads no segment that the writer would have to keep.
    options.job = 3;
    const auto own = open_store(options);
    do {
      const auto found = look_for_files(*own, 500);
      wrong += found.wrong;
      right += found.right;
      has_looked.store(true);
      has_looked.notify_one();
    } while (!done.load());
  });
  // The files exist when the first search begins, and are removed during the next.
  has_looked.wait(false);
  append_files(*store, 10'000, 11'000);
  done.store(true);
  reader.join();
  EXPECT_EQ(wrong.load(), 0U);
  EXPECT_GT(right.load(), 0U);
  EXPECT_GT(store->status().evicted, 0U);
}

// A change first marks the record in RAM and then drops it from the disk. The record must not
// reappear afterwards.
TEST(DiskWriters, AChangeWhileItsRecordIsWrittenIsNotLost) {
  const DiskFixture f;
  const auto store = open_store(f.options);
  std::size_t too_early = 0;
  for (int round = 0; round < 300; ++round) {
    RamSegment segment;
    for (std::size_t i = 0; i < 20; ++i) {
      const std::string path = name_of(i) + "-" + std::to_string(round);
      ASSERT_TRUE(segment.add(path, content_of(path, 500)));
    }
    std::atomic<bool> go{false};
    std::thread writer([&] {
      while (!go.load()) {
      }
      for (std::size_t i = 0; i < 20; ++i) {
        segment.record(i).stale.store(Record::k_changed);
        store->forget(segment.record(i).path());
      }
    });
    go.store(true);
    const auto done = store->append(segment.bytes(), segment.offsets());
    writer.join();
    ASSERT_TRUE(done);
    too_early += done->written;
    for (std::size_t i = 0; i < 20; ++i)
      ASSERT_FALSE(read_back(*store, segment.record(i).path())) << round << " " << i;
  }
  EXPECT_GT(too_early, 0U)
      << "some were written first and forgotten then, or the test races with nobody";
}

}  // namespace
}  // namespace cube::cache
