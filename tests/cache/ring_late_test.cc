// A ring that is made when the region is full: resident segments join it, few of them, and none that somebody may still look at.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cache/base/clock.h"
#include "cache/region/segments.h"
#include "tests/support/child.h"
#include "tests/support/ring_files.h"
#include "tests/support/sanitizers.h"
#include "tests/support/tracee.h"

namespace cube::cache {
namespace {

using tests::Child;
using tests::Gate;
using tests::k_mib;
using tests::Tracee;

constexpr std::size_t k_bytes = 60'000;
constexpr std::size_t k_most_of_one = 2 * k_mib / k_bytes;  // files of a segment

// Made quickly, for regions that are filled a hundred times.
std::string content(const std::string& path) {
  std::string bytes(k_bytes, static_cast<char>('a' + base::hash_path(path) % 26));
  return bytes.replace(0, path.size(), path).replace(k_bytes - path.size(), path.size(), path);
}

// A region that is full of files that stay, and a ring of four segments that is made then.
struct LateRing {
  tests::TestRegion region;
  RamTier tier{*region};
  Ring& ring = tier.ring();
  std::vector<std::string> resident, ahead;

  explicit LateRing(std::uint64_t bytes = 32 * k_mib, std::uint64_t ring_bytes = 8 * k_mib) : region(bytes) {
    while (true) {
      const std::string path = "/resident/" + std::to_string(resident.size());
      if (!tests::put(tier, path, content(path))) break;
      resident.push_back(path);
    }
    // As a job that has ended.
    tier.release_lease();
    ring.make(ring_bytes);
  }
  SegmentRow& row(std::uint32_t segment) { return region->segment_row(segment); }
  bool put_next() {
    const std::string path = "/ahead/" + std::to_string(ahead.size());
    if (!tests::put_in_ring(tier, path, content(path))) return false;
    ahead.push_back(path);
    return true;
  }
  void fill() {
    while (put_next()) {
    }
  }
  bool is_there(const std::string& path) {
    const Pin pin = tests::find(tier, path);
    return pin && tests::bytes_of(*pin) == content(path);
  }
  std::size_t residents_left() {
    return static_cast<std::size_t>(
        std::count_if(resident.begin(), resident.end(), [&](const auto& path) { return is_there(path); }));
  }
  std::uint32_t joined() {
    std::uint32_t n = 0;
    for (std::uint32_t segment = 0; segment < ring.end_segment(); ++segment) n += ring.owns(segment) ? 1 : 0;
    return n;
  }
  // The first file that stays of each segment. All are open as long as the pins live.
  std::vector<Pin> one_of_each() {
    std::vector<Pin> pins(ring.end_segment());
    for (const auto& path : resident) {
      Pin pin = tests::find(tier, path);
      if (!pin) continue;
      Pin& place = pins[ring.segment_of(*pin)];
      if (!place) place = std::move(pin);
    }
    return pins;
  }
};

struct LateRingTest : testing::Test, LateRing {};

TEST_F(LateRingTest, GetsItsSegmentsOneByOneFromThoseThatStay) {
  EXPECT_FALSE(ring.came_too_late());
  EXPECT_FALSE(ring.is_in_use());
  EXPECT_EQ(ring.room(), 2 * k_mib);
  EXPECT_EQ(residents_left(), resident.size()) << "a look takes nothing away";
  ASSERT_TRUE(put_next());
  EXPECT_EQ(joined(), 1U);
  EXPECT_GE(residents_left(), resident.size() - k_most_of_one);
  EXPECT_TRUE(ring.is_in_use());
  fill();
  EXPECT_EQ(joined(), 4U);
  EXPECT_GE(residents_left(), resident.size() - 4 * k_most_of_one);
  EXPECT_EQ(ring.room(), 0U);
  EXPECT_GT(ahead.size(), 3 * k_most_of_one);
  for (const auto& path : ahead) EXPECT_TRUE(tests::open_right(tier, path, content(path))) << path;
  EXPECT_EQ(tests::counters_of(*region), "right");
}

TEST_F(LateRingTest, PassesFilesThroughAsAnyOther) {
  fill();
  const std::size_t left = residents_left();
  for (std::size_t i = 0; i < 1000; ++i) {
    ASSERT_LT(i, ahead.size());
    ASSERT_TRUE(tests::open_right(tier, ahead[i], content(ahead[i]))) << i;
    fill();
  }
  EXPECT_EQ(joined(), 4U);
  EXPECT_EQ(residents_left(), left);
  EXPECT_EQ(tests::counters_of(*region), "right");
}

TEST(LateRings, TakeNoMoreThanEight) {
  LateRing late(64 * k_mib, 30 * k_mib);
  ASSERT_GT(late.ring.end_segment() - late.ring.first_segment(), 8U);
  late.fill();
  EXPECT_EQ(late.joined(), 8U);
  EXPECT_GE(late.residents_left(), late.resident.size() - 8 * k_most_of_one);
}

TEST(LateRings, TakeNoneWhileTheyHaveSegmentsToLease) {
  tests::TestRegion region{32 * k_mib};
  RamTier tier{*region};
  tier.ring().make(8 * k_mib);
  std::size_t put = 0;
  while (tests::put(tier, "/resident/" + std::to_string(put), std::string(k_bytes, 'x'))) ++put;
  tier.release_lease();
  for (std::size_t i = 0; tests::put_in_ring(tier, "/ahead/" + std::to_string(i), std::string(k_bytes, 'y')); ++i) continue;
  for (std::size_t i = 0; i < put; ++i) EXPECT_TRUE(tests::find(tier, "/resident/" + std::to_string(i))) << i;
}

// A child may have inherited the mapping, so that no claim tells of it.
TEST_F(LateRingTest, NeverGetsASegmentThatAProgramHasMapped) {
  {
    const std::vector<Pin> pins = one_of_each();
    for (std::uint32_t segment = 0; segment + 1 < pins.size(); ++segment) ring.note_mapped(*pins[segment]);
  }
  EXPECT_FALSE(ring.came_too_late()) << "one is left";
  ASSERT_TRUE(put_next());
  EXPECT_TRUE(ring.owns(ring.end_segment() - 1));
  fill();
  EXPECT_EQ(joined(), 1U);
  EXPECT_GE(residents_left(), resident.size() - k_most_of_one);
}

TEST_F(LateRingTest, SaysSoIfAllAreMapped) {
  {
    const std::vector<Pin> pins = one_of_each();
    for (const Pin& pin : pins) ring.note_mapped(*pin);
  }
  EXPECT_TRUE(ring.came_too_late());
  EXPECT_EQ(ring.room(), 0U);
  EXPECT_EQ(ring.lease().error().value, ENOSPC);
  EXPECT_EQ(residents_left(), resident.size());
}

TEST_F(LateRingTest, LeavesWhatSomebodyHasOpenAndTakesAnother) {
  std::vector<Pin> pins = one_of_each();
  EXPECT_EQ(ring.room(), 0U);
  EXPECT_FALSE(put_next());
  EXPECT_EQ(residents_left(), resident.size());
  // Far from the ring's own place.
  pins[1].release();
  EXPECT_EQ(ring.room(), 2 * k_mib);
  fill();
  EXPECT_TRUE(ring.owns(1));
  EXPECT_EQ(joined(), 1U);
  for (const auto& path : ahead) EXPECT_TRUE(tests::open_right(tier, path, content(path))) << path;
  tier.release_ring_lease();
  EXPECT_EQ(ring.room(), 2 * k_mib) << "its own is used anew";
  for (const Pin& pin : pins) EXPECT_TRUE(!pin || tests::bytes_of(*pin) == content(std::string(pin->path())));
}

TEST_F(LateRingTest, LeavesWhatWasPrefetchedAndNotReadYet) {
  {
    const std::vector<Pin> pins = one_of_each();
    for (std::uint32_t segment = 1; segment < pins.size(); ++segment) ring.note_published(*pins[segment]);
  }
  ASSERT_TRUE(put_next());
  EXPECT_TRUE(ring.owns(0));
  fill();
  EXPECT_EQ(joined(), 1U);
  const Pin read = one_of_each()[5].duplicate();
  ASSERT_TRUE(read);
  EXPECT_TRUE(ring.note_opened(*read));
}

TEST_F(LateRingTest, LeavesWhatTheDiskDoesNotHaveYet) {
  region->header().disk_alive_ns.store(base::coarse_monotonic_ns() + 3'600'000'000'000ULL);
  EXPECT_EQ(ring.room(), 0U);
  EXPECT_FALSE(put_next());
  row(3).flushed.store(row(3).fresh.load());
  ASSERT_TRUE(put_next());
  EXPECT_TRUE(ring.owns(3));
  region->header().disk_alive_ns.store(0);
  EXPECT_EQ(ring.room(), 2 * k_mib) << "a disk that nobody writes is not awaited";
}

TEST_F(LateRingTest, LeavesTheSegmentsThatProcessesFill) {
  // All but the first are others'.
  for (std::uint32_t segment = 1; segment < ring.end_segment(); ++segment) {
    const SegmentWord word = tests::word_of(*region, segment);
    ASSERT_TRUE(swap_word(row(segment), word, {SegmentState::open, region->own_slot(), word.generation}));
  }
  ASSERT_TRUE(put_next());
  EXPECT_TRUE(ring.owns(0));
  fill();
  EXPECT_EQ(joined(), 1U);
}

TEST(LateRings, LeaveARoomThatIsBeingFilled) {
  tests::TestRegion region{32 * k_mib};
  RamTier tier{*region};
  auto room = tier.reserve(10, k_bytes);
  ASSERT_TRUE(room);
  std::byte* const data = room->data();
  for (int i = 0; tests::put(tier, "/resident/" + std::to_string(i), std::string(k_bytes, 'x')); ++i) continue;
  tier.release_lease();
  Ring& ring = tier.ring();
  ring.make(16 * k_mib);
  // No other may join, so that it would be this one.
  for (std::uint32_t segment = 1; segment < ring.end_segment(); ++segment) region->segment_row(segment).is_mapped.store(1);
  EXPECT_FALSE(tests::put_in_ring(tier, "/ahead", std::string(k_bytes, 'y')));
  std::fill_n(data, k_bytes, std::byte{'z'});
  ASSERT_TRUE(tests::publish(tier, std::move(*room), tests::content_for("/slow", k_bytes)));
  EXPECT_EQ(tests::bytes_of(*tests::find(tier, "/slow")), std::string(k_bytes, 'z'));
  EXPECT_TRUE(ring.came_too_late());
  *room = {};
  EXPECT_FALSE(ring.came_too_late());
}

TEST(LateRings, LeaveRuns) {
  tests::TestRegion region{32 * k_mib};
  RamTier tier{*region};
  std::vector<std::string> runs;
  for (int i = 0; i < 100; ++i) {
    const std::string path = "/run/" + std::to_string(i);
    if (tests::put(tier, path, std::string(3 * k_mib, 'r'))) runs.push_back(path);
  }
  ASSERT_GT(runs.size(), 3U);
  for (int i = 0; tests::put(tier, "/small/" + std::to_string(i), std::string(k_bytes, 'x')); ++i) continue;
  tier.release_lease();
  tier.ring().make(8 * k_mib);
  for (int i = 0; tests::put_in_ring(tier, "/ahead/" + std::to_string(i), std::string(k_bytes, 'y')); ++i) continue;
  for (const auto& path : runs) {
    const Pin pin = tests::find(tier, path);
    ASSERT_TRUE(pin) << path;
    EXPECT_EQ(tests::bytes_of(*pin), std::string(3 * k_mib, 'r')) << path;
  }
}

// A mapping is known here by its address alone, as one that a child has inherited.
TEST(LateRings, ReadersMappingsAndALeaderAtOnceSeeRightBytes) {
  LateRing late(64 * k_mib, 16 * k_mib);
  constexpr std::size_t k_files = 1000, k_readers = 3;
  std::atomic<bool> over{false};
  std::atomic<int> wrong{0};
  std::atomic<std::size_t> ready{0};
  std::vector<std::thread> readers;
  for (std::size_t r = 0; r < k_readers; ++r) {
    readers.emplace_back([&, r] {
      RamTier own(*late.region);
      std::vector<std::pair<std::string, std::string_view>> mapped;
      const auto map = [&](const Pin& pin) {
        if (own.ring().holds(*pin)) return;
        own.ring().note_mapped(*pin);
        mapped.emplace_back(pin->path(), tests::bytes_of(*pin));
      };
      // In segments that would join first, and then anywhere.
      for (std::size_t i = 0; i < 3; ++i) map(tests::find(own, late.resident[late.resident.size() - 1 - r - i * k_most_of_one]));
      ready.fetch_add(1);
      for (std::size_t i = r; !over.load(); i = (i + 17) % late.resident.size()) {
        const std::string& path = late.resident[i];
        const Pin pin = tests::find(own, path);
        if (!pin) continue;
        if (i % 64 == r && mapped.size() < 8) map(pin);
        wrong += tests::bytes_of(*pin) == content(path) ? 0 : 1;
      }
      for (const auto& [path, bytes] : mapped) wrong += bytes == content(path) ? 0 : 1;
    });
  }
  while (ready.load() < k_readers) std::this_thread::yield();
  for (std::size_t i = 0; i < k_files; ++i) {
    while (!late.put_next()) {
      for (const auto& path : late.ahead) tests::open_right(late.tier, path, content(path));
      std::this_thread::yield();
    }
  }
  over.store(true);
  for (auto& reader : readers) reader.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_GT(late.joined(), 0U);
  EXPECT_LE(late.joined(), 8U);
  EXPECT_EQ(tests::counters_of(*late.region), "right");
}

// How a child ends.
constexpr int k_got_it = 10, k_got_another = 11, k_got_nothing = 12;

struct JoinSteps : LateRing {
  JoinSteps() : LateRing(16 * k_mib) {}
  // The child joins the last segment, or another.
  std::uint32_t last() const { return ring.end_segment() - 1; }
  Tracee child() {
    return Tracee([this] {
      Region* const own = tests::attach(region.options);
      CHILD_CHECK(own != nullptr);
      RamTier own_tier(*own);
      raise(SIGSTOP);
      const auto leased = own_tier.ring().lease();
      return !leased ? k_got_nothing : *leased == last() ? k_got_it : k_got_another;
    });
  }
  std::string file_of_last() {
    const Pin pin = one_of_each()[last()].duplicate();
    return std::string(pin->path());
  }
  SegmentState state() { return tests::word_of(*region, last()).state; }
  // Up to the moment that nobody sees it any more.
  long steps_until_it_is_taken() {
    Tracee one = child();
    long steps = 0;
    if (!one.to_stop()) return -1;
    while (state() != SegmentState::evicting && one.step()) ++steps;
    one.kill();
    region->reap();
    return steps;
  }
};

void step_on(Tracee& child, long steps) {
  for (long i = 0; i < steps && child.step(); ++i) {
  }
}

TEST(LateRingSteps, WhatAProgramMapsMeanwhileIsNotTaken) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  const long middle = JoinSteps().steps_until_it_is_taken();
  ASSERT_GT(middle, 0);
  int mapped = 0, taken = 0;
  for (long steps = std::max(0L, middle - 40); steps < middle + 8; ++steps) {
    JoinSteps late;
    const std::string path = late.file_of_last();
    Tracee child = late.child();
    ASSERT_TRUE(child.to_stop());
    step_on(child, steps);
    bool is_mapped = false;
    // The file is closed at once; the mapping stays.
    if (const Pin pin = tests::find(late.tier, path); pin && !late.ring.holds(*pin)) {
      late.ring.note_mapped(*pin);
      is_mapped = true;
    }
    while (child.to_stop()) {
    }
    const int end = child.exit_status();
    EXPECT_TRUE(end == k_got_it || end == k_got_another) << end;
    EXPECT_FALSE(is_mapped && end == k_got_it) << "both, at step " << steps << " of " << middle;
    mapped += is_mapped ? 1 : 0;
    taken += end == k_got_it ? 1 : 0;
  }
  EXPECT_GT(mapped, 0);
  EXPECT_GT(taken, 0);
}

TEST(LateRingSteps, OneThatIsNotTakenAfterAllKeepsItsRoomForOthers) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  const long middle = JoinSteps().steps_until_it_is_taken();
  JoinSteps late;
  SegmentRow& row = late.row(late.last());
  const SegmentWord before = tests::word_of(*late.region, late.last());
  const SegmentWord open{SegmentState::open, k_no_owner, before.generation};
  ASSERT_TRUE(before.as_word() == open.as_word() || swap_word(row, before, open));
  Tracee child = late.child();
  ASSERT_TRUE(child.to_stop());
  step_on(child, middle);
  ASSERT_EQ(late.state(), SegmentState::evicting);
  // A prefetch wants it again.
  row.unread.fetch_add(1);
  while (child.to_stop()) {
  }
  EXPECT_EQ(child.exit_status(), k_got_another);
  EXPECT_EQ(tests::word_of(*late.region, late.last()).as_word(), open.as_word());
  EXPECT_FALSE(late.ring.owns(late.last()));
}

// At each step the segment is a resident one with all its files, or the ring's, which can use it.
TEST(LateRingSteps, KilledAnywhereItLosesNoSegment) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  const long middle = JoinSteps().steps_until_it_is_taken();
  int as_before = 0, of_ring = 0;
  for (long steps = std::max(0L, middle - 4); steps < middle + 1200; steps += steps < middle + 60 ? 2 : 41) {
    JoinSteps late;
    Tracee child = late.child();
    ASSERT_TRUE(child.to_stop());
    step_on(child, steps);
    const bool has_ended = !child.is_alive();
    child.kill();
    late.region->reap();
    if (late.ring.owns(late.last())) {
      ++of_ring;
      // Nobody has read anything of it, so it need not be there; a file that is found is right.
      for (const auto& path : late.resident) {
        const Pin pin = tests::find(late.tier, path);
        ASSERT_TRUE(!pin || tests::bytes_of(*pin) == content(path)) << path;
      }
    } else {
      ++as_before;
      EXPECT_EQ(late.residents_left(), late.resident.size()) << "at step " << steps;
    }
    late.fill();
    EXPECT_EQ(late.joined(), late.ring.end_segment() - late.ring.first_segment()) << "at step " << steps << " of " << middle;
    for (const auto& path : late.ahead) ASSERT_TRUE(tests::open_right(late.tier, path, content(path))) << path;
    // Killed between the segment's count and the region's, it leaves the region's too high by its records.
    EXPECT_EQ(tests::counters_of(*late.region, has_ended ? 0 : late.resident.size()), "right");
    if (has_ended) break;
  }
  EXPECT_GT(as_before, 0);
  EXPECT_GT(of_ring, 0);
}

}  // namespace
}  // namespace cube::cache
