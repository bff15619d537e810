// A follower that asks for the lead gets it if the leader has ended, has died, or no longer beats.
#include "cache/region/life/lead_claim.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/support/attached_child.h"

namespace cube::cache {
namespace {

using tests::Child;
using tests::TestRegion;

constexpr std::uint64_t k_look_ns = LeadClaim::k_between_looks_ns;

// A follower that asks for the lead at intervals that are long enough for each request to count.
struct Follower {
  explicit Follower(Region& region) : claim(region) {}
  bool look() { return claim.look(now_ns += k_look_ns); }
  // Returns how many of these requests failed; `most` means that the follower has not got the lead.
  unsigned looks_before_lead(unsigned most) {
    for (unsigned i = 0; i < most; ++i) {
      if (look()) return i;
    }
    return most;
  }

  LeadClaim claim;
  std::uint64_t now_ns = 1;
};

// A leader that lives until it is killed.
Child leader_of(const TestRegion& region) {
  return tests::attached_child(region.options, [](Region& mine) {
    static LeadClaim claim(mine);
    CHILD_CHECK(claim.look(1));
    return 0;
  });
}

TEST(LeadClaim, BelongsToTheFirstThatAsks) {
  const TestRegion region;
  Follower first(*region), second(*region);
  EXPECT_FALSE(first.claim.beat()) << "it has not asked yet";
  EXPECT_TRUE(first.look());
  EXPECT_FALSE(second.look());
  EXPECT_FALSE(second.claim.beat());
  EXPECT_TRUE(first.claim.beat());
  first.claim.give_up();
  EXPECT_FALSE(first.claim.beat());
  EXPECT_TRUE(second.look()) << "at once";
}

TEST(LeadClaim, StaysWithALeaderThatBeats) {
  const TestRegion region;
  Follower leader(*region), other(*region);
  ASSERT_TRUE(leader.look());
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(other.looks_before_lead(LeadClaim::k_silent_looks), LeadClaim::k_silent_looks)
        << "in round " << i;
    ASSERT_TRUE(leader.claim.beat());
  }
}

TEST(LeadClaim, MovesOnFromALeaderThatDoesNotBeat) {
  const TestRegion region;
  Follower stopped(*region), next(*region);
  ASSERT_TRUE(stopped.look());
  EXPECT_EQ(next.looks_before_lead(100), LeadClaim::k_silent_looks);
  EXPECT_TRUE(next.claim.beat());
  EXPECT_FALSE(stopped.claim.beat()) << "it finds that it has lost the lead";
  EXPECT_TRUE(next.claim.beat()) << "and takes nothing by that";
  // After give_up() the stopped leader follows, and its mutex is free.
  stopped.claim.give_up();
  EXPECT_EQ(stopped.looks_before_lead(5), 5U);
  next.claim.give_up();
  EXPECT_TRUE(stopped.look());
}

// The clock jumps when a machine or container was suspended. A stopped follower has not asked
// during that time.
TEST(LeadClaim, SurvivesAJumpOfTheClock) {
  const TestRegion region;
  Follower leader(*region), other(*region);
  ASSERT_TRUE(leader.look());
  EXPECT_FALSE(other.look());
  other.now_ns += 1'000'000 * k_look_ns;
  EXPECT_EQ(other.looks_before_lead(LeadClaim::k_silent_looks - 1), LeadClaim::k_silent_looks - 1);
  ASSERT_TRUE(leader.claim.beat());
  // Requests in quick succession count as one.
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(other.claim.look(other.now_ns + 1));
}

TEST(LeadClaim, PassesOverAsManyStoppedLeadersAsThereAreMutexes) {
  const TestRegion region;
  std::vector<std::unique_ptr<Follower>> stopped;
  for (std::uint32_t i = 0; i < k_lead_locks; ++i) {
    stopped.push_back(std::make_unique<Follower>(*region));
    ASSERT_LE(stopped.back()->looks_before_lead(100), LeadClaim::k_silent_looks);
  }
  Follower last(*region);
  EXPECT_EQ(last.looks_before_lead(100), 100U);
  // One of the stopped leaders continues.
  EXPECT_FALSE(stopped[3]->claim.beat());
  stopped[3]->claim.give_up();
  EXPECT_TRUE(last.look());
  EXPECT_FALSE(stopped.back()->claim.beat());
}

TEST(LeadClaim, IsTakenFromADeadProcessImmediately) {
  const TestRegion region;
  Child leader = leader_of(region);
  Follower next(*region);
  EXPECT_FALSE(next.look());
  leader.kill();
  EXPECT_TRUE(next.look());
}

// The first leader has lost the lead to the second leader, and is killed while it is stopped.
TEST(LeadClaim, SurvivesTheDeathOfAPreviousLeader) {
  const TestRegion region;
  Child former = leader_of(region);
  Follower leader(*region), other(*region);
  ASSERT_EQ(leader.looks_before_lead(100), LeadClaim::k_silent_looks);
  former.kill();
  EXPECT_FALSE(other.look());
  EXPECT_TRUE(leader.claim.beat());
}

}  // namespace
}  // namespace cube::cache
