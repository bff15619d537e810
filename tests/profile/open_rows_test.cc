#include "shim/profile/open_rows.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace cube::shim::profile {
namespace {

class OpenRows : public testing::Test {
 protected:
  static Tables& all() {
    static Tables* const tables = make_tables();
    return *tables;
  }
  void SetUp() override { start_over(all()); }
  static FdRow& row() { return *row_of_fd(all(), 5); }
  static std::uint64_t count(OpenCount which) { return all().sites[0].opens[which]; }
  static void open(std::uint64_t file = 77) { begin_open(all(), row(), file, 0, 0); }
  static void close() { end_open(all(), row()); }
  // Reads from the file's own offset.
  static void read(std::size_t wanted, std::size_t got) { note_read(row(), -1, wanted, got, 10); }
  static void seek(std::int64_t to) { note_seek(row(), to, SEEK_SET, to, 1); }
};

TEST_F(OpenRows, FileReadToItsEndIsWhole) {
  open();
  read(100, 100);
  read(100, 20);
  close();
  EXPECT_EQ(count(k_whole), 1U);
  EXPECT_EQ(count(k_read_bytes), 120U);
  EXPECT_EQ(count(k_read_ns), 20U);
  EXPECT_EQ(count(k_unread), 0U);
}

TEST_F(OpenRows, FileOpenedForWritingIsNotUnread) {
  open();
  close();
  EXPECT_EQ(count(k_unread), 1U);
  begin_open(all(), row(), 77, 0, k_other_use);
  close();
  EXPECT_EQ(count(k_unread), 1U);
  EXPECT_EQ(count(k_closed), 2U);
}

TEST_F(OpenRows, FileOfWhichAPartWasReadIsNotWhole) {
  open();
  note_seek(row(), 0, SEEK_END, 1000, 1);
  seek(0);
  read(100, 100);
  close();
  EXPECT_EQ(count(k_whole), 0U);
}

TEST_F(OpenRows, HeadOfAFileOfUnknownSizeIsNotAllOfIt) {
  open();
  read(4096, 4096);
  close();
  EXPECT_EQ(count(k_whole), 0U);
  open();
  note_size(row(), 4096);
  read(4096, 4096);
  close();
  EXPECT_EQ(count(k_whole), 1U);
}

TEST_F(OpenRows, FileReadAfterItsHeadCountsAsOpenedAgain) {
  open();
  read(4096, 4096);
  close();
  open();
  row().open_ns = 7;
  read(4096, 4096);
  read(4096, 10);
  close();
  EXPECT_EQ(count(k_opened_again), 1U);
  EXPECT_EQ(count(k_opened_again_ns), 7U);
  EXPECT_EQ(count(k_whole_again), 0U);
  for (std::uint64_t file = 1; file <= 16; ++file) {
    open(file);
    close();
  }
  open();
  close();
  EXPECT_EQ(count(k_opened_again), 1U) << "another epoch";
}

TEST_F(OpenRows, CopyOfAnFdIsTheSameOpenFile) {
  FdRow& copy = *row_of_fd(all(), 6);
  open();
  note_size(row(), 300);
  read(100, 100);
  begin_copy(all(), row(), copy);
  note_read(copy, -1, 200, 200, 10);
  end_open(all(), copy);
  EXPECT_EQ(count(k_closed), 0U);
  close();
  EXPECT_EQ(count(k_closed), 1U);
  EXPECT_EQ(count(k_reads), 2U);
  EXPECT_EQ(count(k_whole), 1U);
  EXPECT_EQ(count(k_jumps), 0U);
  // The original is closed first.
  open(8);
  begin_copy(all(), row(), copy);
  close();
  note_read(copy, -1, 200, 200, 10);
  end_all(all());
  EXPECT_EQ(count(k_closed), 2U);
  EXPECT_EQ(count(k_unread), 0U);
}

TEST_F(OpenRows, FileReadAgainSoonIsReadTwice) {
  for (int i = 0; i < 2; ++i) {
    open();
    row().open_ns = 7;
    read(100, 50);
    close();
  }
  EXPECT_EQ(count(k_whole_again), 1U);
  EXPECT_EQ(count(k_whole_again_ns), 17U);
  EXPECT_EQ(count(k_opened_again), 0U) << "one pattern is enough";
}

TEST_F(OpenRows, FileReadAgainInTheNextEpochIsNotReadTwice) {
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (std::uint64_t file = 1; file <= 20; ++file) {
      open(file);
      read(100, 50);
      close();
    }
  }
  EXPECT_EQ(count(k_whole), 40U);
  EXPECT_EQ(count(k_whole_again), 0U);
}

TEST_F(OpenRows, ManySeeksAndReadsAreAStorm) {
  open();
  for (int i = 0; i < 10; ++i) {
    seek(i * 1000);
    read(600, 600);
  }
  close();
  EXPECT_EQ(count(k_storms), 1U);
  EXPECT_EQ(count(k_storm_ns), 110U);
  EXPECT_EQ(count(k_tiny_files), 0U);
}

TEST_F(OpenRows, QueryOfTheOffsetIsNotASeek) {
  open();
  for (int i = 0; i < 10; ++i) {
    note_seek(row(), 0, SEEK_CUR, i * 600, 1);
    read(600, 600);
  }
  close();
  EXPECT_EQ(count(k_seeks), 0U);
  EXPECT_EQ(count(k_storms), 0U);
  EXPECT_EQ(count(k_jumps), 0U);
}

TEST_F(OpenRows, ScatteredPreadsAreAStorm) {
  open();
  for (int i = 0; i < 10; ++i) note_read(row(), i * 1000, 600, 600, 10);
  close();
  EXPECT_EQ(count(k_storms), 1U);
  EXPECT_EQ(count(k_seeks), 9U);
  open();
  for (int i = 0; i < 10; ++i) note_read(row(), i * 600, 600, 600, 10);
  close();
  EXPECT_EQ(count(k_storms), 1U) << "in turn";
}

TEST_F(OpenRows, ReadByPreadLeavesTheOffsetWhereItIs) {
  open();
  read(100, 100);
  note_read(row(), 1000, 50, 50, 10);
  read(100, 100);
  EXPECT_EQ(row().position, 200U);
  close();
  EXPECT_EQ(count(k_jumps), 2U);
}

TEST_F(OpenRows, StormOfTinyReadsDoesNotCountAsTiny) {
  open();
  for (int i = 0; i < 20; ++i) {
    seek(i * 1000);
    read(8, 8);
  }
  close();
  EXPECT_EQ(count(k_storms), 1U);
  EXPECT_EQ(count(k_tiny_files), 0U);
}

TEST_F(OpenRows, ManyShortReadsAreTiny) {
  open();
  for (int i = 0; i < 20; ++i) read(4096, 4096);
  close();
  EXPECT_EQ(count(k_tiny_files), 1U);
  EXPECT_EQ(count(k_storms), 0U);
}

TEST_F(OpenRows, LargeFileReadOutOfOrderIsRandom) {
  open();
  for (int i = 0; i < 10; ++i) note_read(row(), (20LL << 20) - i * 100000, 4096, 4096, 5);
  close();
  EXPECT_EQ(count(k_large), 1U);
  EXPECT_EQ(count(k_large_random), 1U);
  EXPECT_EQ(count(k_jumps), 9U);
  EXPECT_EQ(count(k_storms), 0U);
}

TEST_F(OpenRows, LargeFileReadInOrderIsNotRandom) {
  open();
  for (int i = 0; i < 20; ++i) read(1 << 20, 1 << 20);
  close();
  EXPECT_EQ(count(k_large), 1U);
  EXPECT_EQ(count(k_large_random), 0U);
}

TEST_F(OpenRows, FileNeitherReadNorMappedIsUnread) {
  open();
  close();
  open();
  row().flags.fetch_or(k_mapped);
  close();
  EXPECT_EQ(count(k_unread), 1U);
  EXPECT_EQ(count(k_closed), 2U);
}

TEST_F(OpenRows, StatBeforeTheOpenCostsItsTime) {
  FileRow* const file = file_of(all(), 77);
  file->stats_since_open = 2;
  file->stat_us = 30;
  open();
  close();
  open();
  close();
  EXPECT_EQ(count(k_stat_first), 1U);
  EXPECT_EQ(count(k_stat_first_us), 30U);
}

TEST_F(OpenRows, DirectoryDoesNotCountAsAFile) {
  begin_open(all(), row(), 5, 0, k_directory);
  close();
  EXPECT_EQ(count(k_closed), 0U);
}

TEST_F(OpenRows, SumUpOpenFilesAtTheEnd) {
  open();
  read(10, 5);
  end_all(all());
  EXPECT_EQ(count(k_closed), 1U);
  close();
  EXPECT_EQ(count(k_closed), 1U);
}

TEST_F(OpenRows, FdsBeyondTheTableHaveNoRow) {
  EXPECT_EQ(row_of_fd(all(), -1), nullptr);
  EXPECT_EQ(row_of_fd(all(), Tables::k_fds), nullptr);
}

TEST_F(OpenRows, UsesOfAFileAreSummedUpByHowTheyWereAnswered) {
  const auto use = [](base::Way way, std::uint64_t from, std::uint64_t to, bool is_open) {
    note_use(all(), 77,
             {.is_open = is_open,
              .is_read = !is_open,
              .way = way,
              .begin_ns = from,
              .end_ns = to,
              .bytes = 8});
  };
  const auto count_of = [](FileCount which) { return file_of(all(), 77)->counts[which].load(); };
  use(base::Way::origin, 100, 110, true);
  use(base::Way::origin, 110, 113, false);
  use(base::Way::waited, 200, 202, true);
  use(base::Way::tier, 300, 307, true);
  use(base::Way::memory, 400, 401, true);
  use(base::Way::memory, 401, 403, false);
  EXPECT_EQ(count_of(k_first_ns), 100U);
  EXPECT_EQ(count_of(k_last_ns), 403U);
  EXPECT_EQ(count_of(k_file_opens), 4U);
  EXPECT_EQ(count_of(k_from_origin), 1U);
  EXPECT_EQ(count_of(k_waited), 1U);
  EXPECT_EQ(count_of(k_from_tier), 1U);
  EXPECT_EQ(count_of(k_file_bytes), 16U);
  EXPECT_EQ(count_of(k_file_origin_ns), 15U);
  EXPECT_EQ(count_of(k_file_read_ns), 3U);
  EXPECT_EQ(count_of(k_file_tier_ns), 7U);
  EXPECT_EQ(count_of(k_file_memory_ns), 3U);
}

TEST_F(OpenRows, OpensSoonAfterAnotherAreInTheSameEpoch) {
  const auto open_and_close = [](std::uint64_t file) {
    open(file);
    read(100, 40);
    close();
  };
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (std::uint64_t file = 1; file <= 6; ++file) {
      open_and_close(file);
      open_and_close(file);
    }
  }
  EXPECT_EQ(file_of(all(), 3)->counts[k_soon_again], 2U) << "six files make two epochs";
  EXPECT_EQ(file_of(all(), 3)->counts[k_file_size], 40U);
}

}  // namespace
}  // namespace cube::shim::profile
