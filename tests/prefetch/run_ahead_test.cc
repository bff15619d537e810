// Waiting files: which file is next, which files are accepted although the queue is full, and
// whether the ring has room for one more fetch.
#include "prefetch/pace/run_ahead.h"

#include <gtest/gtest.h>

#include "cache/base/clock.h"
#include "tests/support/test_region.h"

namespace cube::prefetch {
namespace {

using tests::k_mib;

struct RunAheadTest : ::testing::Test {
  tests::TestCache cache{32 * k_mib};
  RunAhead run_ahead{cache->ahead()};
  std::uint64_t sequence = 0;

  void add(std::uint32_t reader, int files = 1) {
    for (; files > 0; --files) {
      PlannedFile file;
      file.reader = reader;
      file.sequence = sequence++;
      run_ahead.add(file);
    }
  }
  PlannedFile take() {
    const std::size_t place = run_ahead.first_of_least_ahead();
    PlannedFile file = std::move(run_ahead.waiting()[place]);
    run_ahead.begin(place, file.reader);
    return file;
  }
};

TEST_F(RunAheadTest, ReaderThatIsLeastAheadComesFirst) {
  add(1, 4);
  EXPECT_EQ(take().reader, 1U);
  EXPECT_EQ(take().reader, 1U);
  add(2, 2);
  EXPECT_EQ(take().sequence, 4U) << "of the second";
  EXPECT_EQ(take().sequence, 5U);
  EXPECT_EQ(take().sequence, 2U) << "each reader's in its order";
  run_ahead.settle(1, 3);
  add(2);
  EXPECT_EQ(take().reader, 1U) << "he has read";
  EXPECT_EQ(take().reader, 2U);
  EXPECT_TRUE(run_ahead.waiting().empty());
}

TEST_F(RunAheadTest, FullOneTakesSomeOfAnotherReader) {
  while (!run_ahead.is_full()) add(1);
  EXPECT_FALSE(run_ahead.takes_beyond(1));
  std::size_t taken = 0;
  for (; run_ahead.takes_beyond(2); ++taken) add(2);
  EXPECT_GE(taken, 16U);
  EXPECT_TRUE(run_ahead.takes_beyond(3));
  for (std::uint32_t reader = 3; run_ahead.takes_beyond(reader); ++reader) add(reader);
  EXPECT_LE(run_ahead.waiting().size(), 1024U);
}

TEST_F(RunAheadTest, ReturnedFileIsBehindFilesThatItsReaderWantsSooner) {
  add(1, 3);
  add(2, 1);
  PlannedFile first = take(), of_other = take(), second = take();
  EXPECT_EQ(of_other.reader, 2U);
  run_ahead.put_back(first);
  run_ahead.put_back(of_other);
  run_ahead.put_back(second);
  EXPECT_EQ(run_ahead.first_unended(1), first.sequence);
  std::vector<std::uint64_t> order;
  while (!run_ahead.waiting().empty()) {
    if (const PlannedFile file = take(); file.reader == 1) order.push_back(file.sequence);
  }
  EXPECT_EQ(order, (std::vector<std::uint64_t>{0, 1, 2}));
}

TEST_F(RunAheadTest, ReturnedFilesDoNotCountAsAhead) {
  add(1, 3);
  PlannedFile first = take(), second = take();
  run_ahead.put_back(first);
  run_ahead.put_back(second);
  add(2, 2);
  ASSERT_EQ(take().reader, 1U);
  EXPECT_EQ(take().reader, 2U);
  EXPECT_EQ(take().reader, 1U);
}

TEST_F(RunAheadTest, IdentifiesReadersFarBehind) {
  add(1, 20);
  for (int i = 0; i < 10; ++i) take();
  EXPECT_FALSE(run_ahead.is_far_behind(1));
  add(2, 8);
  EXPECT_TRUE(run_ahead.is_far_behind(2));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(take().reader, 2U);
  EXPECT_FALSE(run_ahead.is_far_behind(2));
  run_ahead.settle(2, 1);
  EXPECT_TRUE(run_ahead.is_far_behind(2));
}

// Tests how much is planned after a file has found no room.
struct RingRoomTest : RunAheadTest {
  static constexpr std::uint64_t k_bytes = 60'000, k_average = 64 << 10;
  std::uint64_t now = 1;

  RingRoomTest() { cache->ahead().make_ring({.is_percent = false, .value = 8 * k_mib}); }
  bool take_room(unsigned unasked = 0) { return run_ahead.take_room(unasked, now); }
  // So many files find no room, at intervals of a second.
  void find_no_room(int times) {
    for (; times > 0; --times) {
      now += 1000 * base::k_ns_per_ms;
      run_ahead.note_no_room(k_bytes, now);
    }
  }
};

TEST_F(RingRoomTest, RoomThatIsPromisedToOthersIsNotPromisedAgain) {
  const auto records = static_cast<unsigned>(cache->ahead().ring_room() / k_average);
  ASSERT_GT(records, 100U);
  EXPECT_FALSE(take_room(2 * records));
  EXPECT_FALSE(take_room(records));
  EXPECT_TRUE(take_room(records - 1));
  EXPECT_FALSE(take_room(records));
}

// A record cannot span two segments, so the end of each segment holds no record.
TEST_F(RingRoomTest, PromisesOnlyAsManyRecordsAsTheSegmentsHold) {
  constexpr std::uint64_t k_record = 460'000;
  for (int i = 0; i < 200; ++i) run_ahead.note_placed(k_record);
  const std::uint64_t segment = cache->ahead().segment_bytes();
  const std::uint64_t most = cache->ahead().ring_room() / segment * (segment / k_record);
  ASSERT_LT(most, cache->ahead().ring_room() / k_record);
  unsigned promised = 0;
  while (take_room(promised)) ASSERT_LE(++promised, most);
  EXPECT_EQ(promised, most);
}

TEST_F(RingRoomTest, PlacedRecordEndsThePauseOfOneWithoutRoom) {
  ASSERT_TRUE(take_room());
  find_no_room(20);
  ASSERT_FALSE(take_room());
  run_ahead.note_placed(k_bytes);
  EXPECT_TRUE(take_room());
}

TEST_F(RingRoomTest, FirstPauseAfterARecordThatWasPlacedIsShort) {
  find_no_room(20);
  run_ahead.note_placed(k_bytes);
  find_no_room(1);
  ASSERT_FALSE(take_room());
  now += 1'000'000;
  EXPECT_TRUE(take_room());
}

TEST_F(RingRoomTest, PausesGrowToHalfASecondAndNoLonger) {
  find_no_room(1000);
  now += 400'000'000;
  EXPECT_FALSE(take_room());
  now += 100'000'000;
  EXPECT_TRUE(take_room());
}

}  // namespace
}  // namespace cube::prefetch
