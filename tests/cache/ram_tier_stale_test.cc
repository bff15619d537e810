// Records that are marked stale by path, by inode and by tree, and the index slots that marked
// records free.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "cache/base/clock.h"
#include "cache/region/last_changes.h"
#include "tests/cache/ram_tier_fixture.h"

namespace cube::cache {
namespace {

using tests::put;

TEST_F(RamTierTest, MarkStaleHidesThePath) {
  ASSERT_TRUE(put(tier, "/a", "old"));
  ASSERT_TRUE(put(tier, "/ab", "other"));
  const Pin held = tests::find(tier, "/a");
  EXPECT_EQ(tier.mark_stale("/a"), 1U);
  EXPECT_TRUE(held->is_stale()) << "who holds it must see";
  EXPECT_EQ(tests::bytes_of(*held), "old");
  EXPECT_FALSE(tests::find(tier, "/a"));
  EXPECT_TRUE(tests::find(tier, "/ab"));
  EXPECT_EQ(tier.mark_stale("/a"), 0U);
  ASSERT_TRUE(put(tier, "/a", "new"));
  EXPECT_EQ(tests::bytes_of(*tests::find(tier, "/a")), "new");
  EXPECT_EQ(own_pins(), 1U);
}

TEST_F(RamTierTest, AFileThatChangesOftenTakesOneIndexSlot) {
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(put(tier, "/a", std::to_string(i))) << i;
    EXPECT_EQ(tests::bytes_of(*tests::find(tier, "/a")), std::to_string(i));
    EXPECT_EQ(tier.mark_stale("/a"), 1U);
  }
}

TEST_F(RamTierTest, ShortLivedFilesOfOneInodeTakeOneIndexSlot) {
  for (int i = 0; i < 200; ++i) {
    RecordContent content = tests::content_for("/tmp." + std::to_string(i), 3);
    content.stat = tests::stat_for("/same", 3);
    auto room = tier.reserve(content.path.size(), 3);
    ASSERT_TRUE(room);
    ASSERT_TRUE(tests::publish(tier, std::move(*room), content)) << i;
    EXPECT_EQ(tier.mark_stale_inode(content.stat), 1U);
  }
  EXPECT_FALSE(tier.is_full());
}

TEST_F(RamTierTest, MarkStaleByInodeFindsOtherSpellings) {
  RecordContent content = tests::content_for("/link/a", 3);
  content.physical = false;
  auto room = tier.reserve(content.path.size(), 3);
  ASSERT_TRUE(room);
  ASSERT_TRUE(tests::publish(tier, std::move(*room), content));
  EXPECT_TRUE(tests::find(tier, "/link/a"));
  FileStat other = content.stat;
  other.inode += 1;
  EXPECT_EQ(tier.mark_stale_inode(other), 0U);
  EXPECT_EQ(tier.mark_stale_inode(content.stat), 1U);
  EXPECT_FALSE(tests::find(tier, "/link/a"));
}

TEST_F(RamTierTest, MarkStaleByInodeFindsEveryHardLink) {
  for (const char* path : {"/one", "/two"}) {
    RecordContent content = tests::content_for(path, 3);
    content.stat = tests::stat_for("/same", 3);
    content.stat.links = 2;
    auto room = tier.reserve(content.path.size(), 3);
    ASSERT_TRUE(room);
    ASSERT_TRUE(tests::publish(tier, std::move(*room), content));
  }
  EXPECT_EQ(tier.mark_stale_inode(tests::stat_for("/same", 3)), 2U);
  EXPECT_FALSE(tests::find(tier, "/one"));
  EXPECT_FALSE(tests::find(tier, "/two"));
}

TEST_F(RamTierTest, AReusedInodeMarksOnlyOlderRecords) {
  ASSERT_TRUE(put(tier, "/a", "old"));
  const Pin record = tests::find(tier, "/a");
  tier.mark_verified(*record, 1000);
  EXPECT_EQ(tier.mark_stale_inode(record->stat, Record::k_gone, 1000), 0U);
  EXPECT_FALSE(record->is_stale());
  EXPECT_EQ(tier.mark_stale_inode(record->stat, Record::k_gone, 1001), 1U);
  EXPECT_TRUE(record->may_be_gone());
}

TEST_F(RamTierTest, MarkStaleSparesTheVersionThatThePathHasNow) {
  ASSERT_TRUE(put(tier, "/a", "old"));
  const Pin record = tests::find(tier, "/a");
  FileStat other = record->stat;
  EXPECT_EQ(tier.mark_stale("/a", Record::k_gone, &other), 0U);
  ++other.modified.seconds;
  EXPECT_EQ(tier.mark_stale("/a", Record::k_gone, &other), 1U);
}

TEST_F(RamTierTest, AFileWithTooManyNamesFillsNeitherTheIndexNorTheMemory) {
  const auto put_name = [&](int i) {
    RecordContent content = tests::content_for("/name." + std::to_string(i), 3);
    content.stat = tests::stat_for("/same", 3);
    auto room = tier.reserve(content.path.size(), 3);
    EXPECT_TRUE(room);
    return tests::publish(tier, std::move(*room), content);
  };
  int names = 0;
  while (put_name(names)) ++names;
  EXPECT_EQ(names, static_cast<int>(Index::k_most_of_one));
  EXPECT_TRUE(tier.has_many_names(tests::stat_for("/same", 3)));
  const std::uint32_t filled = fill();
  EXPECT_EQ(put_name(names).error().value, EMLINK);
  EXPECT_EQ(fill(), filled);
  EXPECT_EQ(region->header().records.load(), Index::k_most_of_one);
  EXPECT_FALSE(tier.is_full());
  EXPECT_TRUE(put(tier, "/another", "x"));
  EXPECT_EQ(tier.mark_stale_inode(tests::stat_for("/same", 3)), Index::k_most_of_one);
  EXPECT_FALSE(tier.has_many_names(tests::stat_for("/same", 3)));
  EXPECT_TRUE(put_name(names));
}

TEST_F(RamTierTest, MarkStaleTreeMarksExactlyTheFilesBelow) {
  for (const char* path : {"/d/a", "/d/e/f", "/da", "/d", "/e/d/a"})
    ASSERT_TRUE(put(tier, path, path));
  EXPECT_EQ(tier.mark_stale_tree("/d"), 2U);
  EXPECT_FALSE(tests::find(tier, "/d/a"));
  EXPECT_FALSE(tests::find(tier, "/d/e/f"));
  EXPECT_TRUE(tests::find(tier, "/da"));
  EXPECT_TRUE(tests::find(tier, "/d"));
  EXPECT_TRUE(tests::find(tier, "/e/d/a"));
}

TEST_F(RamTierTest, MarkStaleTreeOfTheRootMarksEveryRecord) {  // must not search for "/" + "/"
  ASSERT_TRUE(put(tier, "/a", "x"));
  EXPECT_EQ(tier.mark_stale_tree("/"), 1U);
}

constexpr std::uint32_t k_in_place = Record::k_changed | Record::k_in_place;
constexpr std::uint32_t k_unlinked = Record::k_changed | Record::k_removed | Record::k_unlinked;

TEST_F(RamTierTest, ChangeInPlaceIsNotedWhateverWasMarkedBefore) {
  ASSERT_TRUE(put(tier, "/d/a", "old"));
  const Pin held = tests::find(tier, "/d/a");
  EXPECT_EQ(tier.mark_stale_tree("/d"), 1U);
  EXPECT_FALSE(was_changed_and_kept(tier, *held));
  tier.mark_stale_inode(held->stat, k_in_place);
  EXPECT_TRUE(was_changed_and_kept(tier, *held));
}

// A new file may have the inode.
TEST_F(RamTierTest, ChangeInPlaceIsNotNotedOfAFileThatIsGone) {
  ASSERT_TRUE(put(tier, "/a", "old"));
  const Pin held = tests::find(tier, "/a");
  tier.mark_stale_inode(held->stat, k_unlinked);
  tier.mark_stale_inode(held->stat, k_in_place);
  EXPECT_FALSE(was_changed_and_kept(tier, *held));
  EXPECT_TRUE(held->has_only_lost_its_name());
}

TEST_F(RamTierTest, PathOfAMarkedRecordMayNameAnotherFile) {
  ASSERT_TRUE(put(tier, "/a", "old"));
  const Pin held = tests::find(tier, "/a");
  tier.mark_stale_inode(held->stat, Record::k_changed | Record::k_removed);
  tier.mark_stale("/a", k_unlinked);
  EXPECT_FALSE(held->may_be_gone());
}

TEST_F(RamTierTest, FileIsNotGoneWithALinkToIt) {
  RecordContent content = tests::content_for("/link", 3);
  content.physical = false;
  auto room = tier.reserve(content.path.size(), 3);
  ASSERT_TRUE(room);
  ASSERT_TRUE(tests::publish(tier, std::move(*room), content));
  const Pin held = tests::find(tier, "/link");
  EXPECT_EQ(tier.mark_stale("/link", k_unlinked), 1U);
  EXPECT_FALSE(held->may_be_gone());
}

TEST_F(RamTierTest, LastChangesAreKnownOfARecordThatIsNoLongerInTheIndex) {
  ASSERT_TRUE(put(tier, "/a", "old"));
  const Pin held = tests::find(tier, "/a");
  note_last_change(*region, tests::stat_for("/b", 3), k_in_place);
  EXPECT_FALSE(was_changed_and_kept(tier, *held)) << "a change of another file";
  note_last_change(*region, held->stat, k_in_place);
  EXPECT_TRUE(was_changed_and_kept(tier, *held));
  note_last_change(*region, held->stat, k_unlinked);
  EXPECT_TRUE(may_be_gone(tier, *held));
  EXPECT_FALSE(was_changed_and_kept(tier, *held)) << "the change may be of a new file";
  tier.mark_verified(*held, base::boot_ns() + 1'000'000);
  EXPECT_FALSE(may_be_gone(tier, *held)) << "the record is of the new file";
}

// Returns the stat of a file whose changes overwrite the row of this file.
FileStat stat_in_row_of(Region& region, const FileStat& stat) {
  const auto row_of = [&](const FileStat& of) {
    return &region.last_change(base::hash_inode(of.device(), of.inode));
  };
  FileStat other = stat;
  do ++other.inode;
  while (row_of(other) != row_of(stat));
  return other;
}

TEST_F(RamTierTest, LastChangesMayBeOverwrittenByThoseOfAnotherFile) {
  ASSERT_TRUE(put(tier, "/a", "old"));
  const Pin held = tests::find(tier, "/a");
  const FileStat other = stat_in_row_of(*region, held->stat);
  note_last_change(*region, other, k_in_place);
  EXPECT_FALSE(was_changed_and_kept(tier, *held)) << "marks reach a record in the index";
  tier.mark_stale("/a");
  ASSERT_TRUE(put(tier, "/a", "newer"));
  EXPECT_TRUE(was_changed_and_kept(tier, *held)) << "a change may have been overwritten";
  note_last_change(*region, other, k_unlinked);
  EXPECT_FALSE(was_changed_and_kept(tier, *held)) << "so may a removal";
  EXPECT_FALSE(may_be_gone(tier, *held));
  note_last_change(*region, held->stat, k_in_place);
  EXPECT_TRUE(was_changed_and_kept(tier, *held));
  tier.mark_verified(*held, base::boot_ns() + 1'000'000);
  EXPECT_FALSE(was_changed_and_kept(tier, *held)) << "both came before";
}

// Marking must need neither an fd nor the name of the region, because otherwise old bytes could be
// served.
TEST_F(RamTierTest, MarkStaleWorksWithoutAFreeFd) {
  ASSERT_TRUE(put(tier, "/a", "old"));
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit none{0, limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  tier.mark_stale("/a");
  setrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_FALSE(tests::find(tier, "/a"));
}

TEST_F(RamTierTest, MarkStaleWorksAfterTheRegionFileIsRemoved) {
  ASSERT_TRUE(put(tier, "/a", "old"));
  const Pin held = tests::find(tier, "/a");
  unlink(region.path().c_str());
  tier.mark_stale("/a");
  EXPECT_FALSE(tests::find(tier, "/a"));
  EXPECT_TRUE(held->is_stale());
}

TEST_F(RamTierTest, VerifiedMarksAreKept) {
  const auto pin = put(tier, "/a", "x");
  ASSERT_TRUE(pin);
  tier.mark_verified(**pin, 77);
  EXPECT_EQ((*pin)->verified_ns.load(), 77U);
  EXPECT_TRUE(tests::is_sound(*region, **pin));
}

TEST_F(RamTierTest, MarksOfTheLastRecordOfTheRegionStayWithinIt) {
  int n = 0;
  const std::string data(30'000, 'x');
  while (put(tier, "/f" + std::to_string(n), data)) ++n;
  for (int i = 0; i < n; ++i) ASSERT_EQ(tier.mark_stale("/f" + std::to_string(i)), 1U);
}

}  // namespace
}  // namespace cube::cache
