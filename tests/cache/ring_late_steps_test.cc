// A process that joins a segment to a late ring is stopped between two instructions. At that
// moment, either programs map or read files, or the process is killed.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <string>

#include "cache/region/segments.h"
#include "tests/support/child.h"
#include "tests/support/late_ring.h"
#include "tests/support/ring_files.h"
#include "tests/support/sanitizers.h"
#include "tests/support/tracee.h"

namespace cube::cache {
namespace {

using tests::k_mib;
using tests::late_content;
using tests::LateRing;
using tests::Tracee;

// The exit statuses of a child.
constexpr int k_got_it = 10, k_got_another = 11, k_got_nothing = 12;

struct JoinSteps : LateRing {
  JoinSteps() : LateRing(16 * k_mib) {}
  // The last segment, which the child may join to the ring. The child may also choose another
  // segment.
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
  // Counts the steps until no process can find the segment.
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

TEST(LateRingSteps, SegmentMappedMeanwhileIsNotTaken) {
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
    // The file is closed immediately, but the mapping stays.
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

TEST(LateRingSteps, UntakenSegmentKeepsItsRoomForOthers) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  JoinSteps late;
  SegmentRow& row = late.row(late.last());
  const SegmentWord before = tests::word_of(*late.region, late.last());
  const SegmentWord open{SegmentState::open, k_no_owner, before.generation};
  ASSERT_TRUE(before.as_word() == open.as_word() || swap_word(row, before, open));
  Tracee child = late.child();
  ASSERT_TRUE(child.to_stop());
  while (late.state() != SegmentState::evicting && child.step()) continue;
  ASSERT_EQ(late.state(), SegmentState::evicting);
  // A prefetch needs the segment again.
  row.unread.fetch_add(1);
  while (child.to_stop()) {
  }
  EXPECT_EQ(child.exit_status(), k_got_another);
  EXPECT_EQ(tests::word_of(*late.region, late.last()).as_word(), open.as_word());
  EXPECT_FALSE(late.ring.owns(late.last()));
}

// At each step, the segment is either resident with all its files, or belongs to the ring, and the
// ring can use it.
TEST(LateRingSteps, KillAtAnyInstructionLosesNoSegment) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  const long middle = JoinSteps().steps_until_it_is_taken();
  int as_before = 0, of_ring = 0;
  // AddressSanitizer adds instructions to the check of all pins.
  constexpr long k_behind = tests::k_asan ? 12000 : 1200, k_stride = k_behind / 30 + 1;
  for (long steps = std::max(0L, middle - 4); steps < middle + k_behind;
       steps += steps < middle + 60 ? 2 : k_stride) {
    JoinSteps late;
    Tracee child = late.child();
    ASSERT_TRUE(child.to_stop());
    step_on(child, steps);
    const bool has_ended = !child.is_alive();
    child.kill();
    late.region->reap();
    if (late.ring.owns(late.last())) {
      ++of_ring;
      // No program has read these files, so they may be missing; a file that is found has the right
      // bytes.
      for (const auto& path : late.resident) {
        const Pin pin = tests::find(late.tier, path);
        ASSERT_TRUE(!pin || tests::bytes_of(*pin) == late_content(path)) << path;
      }
    } else {
      ++as_before;
      EXPECT_EQ(late.residents_left(), late.resident.size()) << "at step " << steps;
    }
    late.fill();
    EXPECT_EQ(late.joined(), late.ring.end_segment() - late.ring.first_segment())
        << "at step " << steps << " of " << middle;
    for (const auto& path : late.ahead)
      ASSERT_TRUE(tests::open_right(late.tier, path, late_content(path))) << path;
    // A kill after the segment's count was changed, and before the region's, leaves the region's
    // count too high by the records of the segment.
    EXPECT_EQ(tests::counters_of(*late.region, has_ended ? 0 : late.resident.size()), "right");
    if (has_ended) break;
  }
  EXPECT_GT(as_before, 0);
  EXPECT_GT(of_ring, 0);
}

}  // namespace
}  // namespace cube::cache
