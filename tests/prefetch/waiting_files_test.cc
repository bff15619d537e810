// Files that wait: which one comes next, and what is taken beyond a full queue.
#include "prefetch/pace/waiting_files.h"

#include <gtest/gtest.h>

namespace cube::prefetch {
namespace {

struct WaitingFilesTest : ::testing::Test {
  WaitingFiles waiting;
  std::uint64_t sequence = 0;

  void add(std::uint32_t reader, int files = 1) {
    for (; files > 0; --files) {
      PlannedFile file;
      file.reader = reader;
      file.sequence = sequence++;
      waiting.add(file);
    }
  }
  PlannedFile take() {
    const std::size_t place = waiting.first_of_least_ahead();
    PlannedFile file = std::move(waiting.at(place));
    waiting.take(place, file.reader);
    return file;
  }
};

TEST_F(WaitingFilesTest, ReaderWhoIsLeastAheadComesFirst) {
  add(1, 4);
  EXPECT_EQ(take().reader, 1U);
  EXPECT_EQ(take().reader, 1U);
  add(2, 2);
  EXPECT_EQ(take().sequence, 4U) << "of the second";
  EXPECT_EQ(take().sequence, 5U);
  EXPECT_EQ(take().sequence, 2U) << "each reader's in its order";
  waiting.note_over(1, 3);
  add(2);
  EXPECT_EQ(take().reader, 1U) << "he has read";
  EXPECT_EQ(take().reader, 2U);
  EXPECT_TRUE(waiting.is_empty());
}

TEST_F(WaitingFilesTest, FullOneTakesSomeOfAnotherReader) {
  while (!waiting.is_full()) add(1);
  EXPECT_FALSE(waiting.takes_beyond(1));
  std::size_t taken = 0;
  for (; waiting.takes_beyond(2); ++taken) add(2);
  EXPECT_GE(taken, 16U);
  EXPECT_TRUE(waiting.takes_beyond(3));
  for (std::uint32_t reader = 3; waiting.takes_beyond(reader); ++reader) add(reader);
  EXPECT_LE(waiting.size(), 1024U);
}

TEST_F(WaitingFilesTest, ReturnedFileIsBehindFilesThatItsReaderWantsSooner) {
  add(1, 3);
  add(2, 1);
  PlannedFile first = take(), of_other = take(), second = take();
  EXPECT_EQ(of_other.reader, 2U);
  waiting.put_back(first);
  waiting.put_back(of_other);
  waiting.put_back(second);
  EXPECT_EQ(waiting.first_of(1), first.sequence);
  std::vector<std::uint64_t> order;
  while (!waiting.is_empty()) {
    if (const PlannedFile file = take(); file.reader == 1) order.push_back(file.sequence);
  }
  EXPECT_EQ(order, (std::vector<std::uint64_t>{0, 1, 2}));
}

TEST_F(WaitingFilesTest, ReaderWhoseFilesComeBackIsNoFurtherAhead) {
  add(1, 3);
  PlannedFile first = take(), second = take();
  waiting.put_back(first);
  waiting.put_back(second);
  add(2, 2);
  ASSERT_EQ(take().reader, 1U);
  EXPECT_EQ(take().reader, 2U);
  EXPECT_EQ(take().reader, 1U);
}

TEST_F(WaitingFilesTest, TellsWhoIsFarBehind) {
  add(1, 20);
  for (int i = 0; i < 10; ++i) take();
  EXPECT_FALSE(waiting.is_far_behind(1));
  add(2, 8);
  EXPECT_TRUE(waiting.is_far_behind(2));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(take().reader, 2U);
  EXPECT_FALSE(waiting.is_far_behind(2));
  waiting.note_over(2, 1);
  EXPECT_TRUE(waiting.is_far_behind(2));
}

}  // namespace
}  // namespace cube::prefetch
