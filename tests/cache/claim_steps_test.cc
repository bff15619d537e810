// A pin of a ring's segment against the segment's reclaim, instruction by instruction. One side is
// stopped between two instructions while the other side runs to its end. Only one of the two may
// succeed.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "cache/region/lanes.h"
#include "cache/region/life/process_slots.h"
#include "tests/support/ring_files.h"
#include "tests/support/sanitizers.h"
#include "tests/support/tracee.h"

namespace cube::cache {
namespace {

using tests::Tracee;

// More instructions than there are between a check and the step that relies on it.
constexpr long k_around = 60;
// The exit statuses of a child.
constexpr int k_got_it = 10, k_got_nothing = 11;

// A full ring.
struct ReadRing {
  tests::TestRegion region{32 * tests::k_mib};
  RamTier tier{*region};
  int files = 0;
  std::string path;  // a file of the first segment

  ReadRing() { tier.ring().make(8 * tests::k_mib); }

  // All files of the first segment have been opened, so that it may be reclaimed. Segments that a
  // dead child has leased are free.
  void prepare() {
    region->reap();
    while (put_next()) {
    }
    tier.release_ring_lease();
    for (int i = 0; i < files; ++i) {
      const Pin pin = tests::find(tier, name_of(i));
      if (!pin || tier.ring().segment_of(*pin) != segment()) continue;
      tier.ring().note_opened(*pin);
      path = name_of(i);
    }
  }
  static std::string name_of(int i) { return "/data/" + std::to_string(1000 + i); }
  bool put_next() {
    static const std::string bytes(600'000, 'x');
    if (!tests::put_in_ring(tier, name_of(files), bytes)) return false;
    ++files;
    return true;
  }
  std::uint32_t segment() { return tier.ring().first_segment(); }
  SegmentState state() { return tests::word_of(*region, segment()).state; }
  bool is_claimed() {
    for (std::uint32_t process = 0; process < slots_reached(*region); ++process) {
      if (pins_of(*region, process, segment()) != 0) return true;
    }
    return false;
  }
  // A child that stops before `part`. Its exit status shows whether `part` succeeded.
  template <typename Part>
  Tracee child(Part&& part) {
    return Tracee([&] {
      Region* const own = tests::attach(region.options);
      CHILD_CHECK(own != nullptr);
      RamTier own_tier(*own);
      raise(SIGSTOP);
      const bool got_it = part(own_tier, path);
      return got_it ? k_got_it : k_got_nothing;
    });
  }
};

void step_on(Tracee& child, long steps) {
  for (long i = 0; i < steps && child.step(); ++i) {
  }
}

int end_of(Tracee& child) {
  while (child.to_stop()) {
  }
  return child.exit_status();
}

// Stops the child's `part` around the step with which `is_there` becomes true, and calls
// `meanwhile` at that point. The two sides must not both succeed.
template <typename Part, typename IsThere, typename Meanwhile>
void try_around(Part&& part, IsThere&& is_there, Meanwhile&& meanwhile) {
  ReadRing ring;
  long middle = 0;
  {
    ring.prepare();
    Tracee child = ring.child(part);
    ASSERT_TRUE(child.to_stop());
    while (!is_there(ring) && child.step()) ++middle;
    ASSERT_TRUE(child.is_alive()) << "it never came there";
    EXPECT_EQ(end_of(child), k_got_it);
  }
  int childs = 0, ours = 0;
  for (long steps = std::max(0L, middle - k_around); steps < middle + 8; ++steps) {
    ring.prepare();
    Tracee child = ring.child(part);
    ASSERT_TRUE(child.to_stop());
    step_on(child, steps);
    // The result is kept until the child has done its part.
    const auto done = meanwhile(ring);
    const int end = end_of(child);
    EXPECT_TRUE(end == k_got_it || end == k_got_nothing) << end;
    EXPECT_FALSE(done && end == k_got_it) << "both, at step " << steps << " of " << middle;
    childs += end == k_got_it ? 1 : 0;
    ours += done ? 1 : 0;
  }
  EXPECT_GT(childs, 0);
  EXPECT_GT(ours, 0);
}

const auto find_it = [](RamTier& tier, const std::string& path) {
  return static_cast<bool>(tests::find(tier, path));
};
const auto lease_it = [](RamTier& tier, const std::string&) {
  return static_cast<bool>(tier.ring().lease());
};
const auto is_claimed = [](ReadRing& ring) { return ring.is_claimed(); };
const auto is_being_taken = [](ReadRing& ring) { return ring.state() == SegmentState::evicting; };

TEST(ClaimSteps, ReaderDoesNotFindASegmentThatIsReclaimed) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  try_around(find_it, is_claimed, [](ReadRing& ring) { return ring.put_next(); });
}

TEST(ClaimSteps, SegmentFoundByAReaderMeanwhileIsNotReclaimed) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  try_around(lease_it, is_being_taken,
             [](ReadRing& ring) { return tests::find(ring.tier, ring.path); });
}

TEST(ClaimSteps, SegmentWantedAgainMeanwhileIsNotReclaimed) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  try_around(lease_it, is_being_taken, [](ReadRing& ring) {
    const Pin pin = tests::find(ring.tier, ring.path);
    return pin && ring.tier.ring().want_again(*pin);
  });
}

// The search must not hide a record even for a moment, because an open at that moment would ask the
// origin.
TEST(ClaimSteps, SearchForRoomNeverHidesARecordInUse) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  ReadRing ring;
  ring.prepare();
  const Pin pin = tests::find(ring.tier, ring.path);
  ASSERT_TRUE(pin);
  Tracee child = ring.child(lease_it);
  ASSERT_TRUE(child.to_stop());
  for (int i = 0; i < 20'000 && child.step(); ++i)
    ASSERT_EQ(ring.state(), SegmentState::sealed) << "at step " << i;
  EXPECT_EQ(end_of(child), k_got_nothing);
}

}  // namespace
}  // namespace cube::cache
