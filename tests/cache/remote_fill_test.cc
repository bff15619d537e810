// A fetch for which no program waits yet reads a file from another node if the file has not
// changed.
#include <gtest/gtest.h>
#include <linux/capability.h>

#include <cstring>
#include <functional>
#include <memory>
#include <new>

#include "cache/base/clock.h"
#include "cache/changes.h"
#include "cache/fill/background_fill.h"
#include "cache/fill/demand_open.h"
#include "tests/support/child.h"
#include "tests/support/empty_tier.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

using Begin = BackgroundFill::Begin;
using Remote = BackgroundFill::Remote;
using tests::Child;
using tests::k_mib;

// Another node that has read one file, when the file had this stat and these bytes.
struct OtherNode final : tests::EmptyTier {
  std::unique_ptr<std::byte[]> memory = std::make_unique<std::byte[]>(1 << 17);
  Record* record = nullptr;
  bool is_of_our_job = false, answers = true;
  std::function<void()> before_answer = [] {};
  unsigned asked = 0, given_back = 0;

  OtherNode(const std::string& path, const FileStat& stat, std::string_view bytes,
            std::uint64_t rights)
      : EmptyTier(1) {
    auto* const start = reinterpret_cast<std::byte*>(
        (reinterpret_cast<std::uintptr_t>(memory.get()) + 4095) / 4096 * 4096);
    const RecordPlan plan = plan_record(0, path.size(), bytes.size(), RecordShape::compact);
    std::memcpy(start + plan.data, bytes.data(), bytes.size());
    RecordContent content{.path = path, .stat = stat};
    content.physical = true;
    content.fetched_ns = base::wall_ns();
    content.rights = rights;
    write_record(start, plan, content);
    record = reinterpret_cast<Record*>(start + plan.start);
    record->stale = 0;
  }
  bool visit(std::string_view, Judge& judge) override {
    ++asked;
    before_answer();
    return judge.judge(*record) == Verdict::taken;
  }
  bool needs_no_look(const Record&) const override { return is_of_our_job; }
  bool may_need_no_look() const override { return is_of_our_job; }
  bool may_answer(std::string_view) override { return answers; }
  void note_not_fetched(std::string_view) override { ++given_back; }
};

struct RemoteFillTest : testing::Test {
  tests::TempDir dir;
  const std::string bytes = tests::content_of("f", 0, 50'000);
  const std::string path = dir.write("f", bytes);
  tests::TestRegion region{32 * k_mib};
  base::Config config = tests::config_for(region.options);
  CacheParts parts{*region, config};
  Changes changes{parts};
  FileStat stat = aged();
  OtherNode other{path, stat, bytes, region->own_rights()};

  RemoteFillTest() { parts.remote.add(other); }
  FileStat aged() const {
    const timespec times[2] = {{1'600'000'000, 0}, {1'600'000'000, 5}};
    EXPECT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    return *stat_path(AT_FDCWD, path.c_str(), 0);
  }
  // Like an engine: asks once without a revalidation, and once more with one.
  Remote take(BackgroundFill& fill, std::uint64_t most_bytes = UINT64_MAX) {
    EXPECT_EQ(fill.begin(), Begin::fetch);
    const Remote first = fill.take_remote(nullptr, most_bytes);
    if (first != Remote::look) return first;
    during_look();
    const FileStat now = *stat_path(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW);
    after_look();
    return fill.take_remote(&now, most_bytes);
  }
  std::string in_memory() const {
    const Pin pin = parts.ram.find(path, base::hash_path(path));
    return pin ? std::string(tests::bytes_of(*pin)) : std::string();
  }
  // Acts as a program of this node that had the file open and writes the same number of bytes in
  // the same tick of the file's clock.
  void write_and_close() {
    dir.write("f", std::string(bytes.size(), 'n'));
    changes.writing_ends(stat);
  }
  std::function<void()> during_look = [] {}, after_look = [] {};
};

TEST_F(RemoteFillTest, TakesARecordThatTheStatProves) {
  BackgroundFill fill(parts, path, false);
  EXPECT_EQ(take(fill), Remote::published);
  EXPECT_EQ(fill.remote_bytes(), bytes.size());
  EXPECT_EQ(in_memory(), bytes);
}

TEST_F(RemoteFillTest, TakesARecordOfOtherRightsAfterAnOpenAtTheOriginAndReadsNothing) {
  other.record->rights += 2;
  BackgroundFill fill(parts, path, false);
  EXPECT_EQ(take(fill), Remote::absent);
  EXPECT_EQ(in_memory(), "");
  // The engine has opened the file.
  EXPECT_EQ(fill.accept({.stat = stat, .is_physical = true}), RecordFill::Next::done);
  EXPECT_EQ(in_memory(), bytes);
  const Pin pin = parts.ram.find(path, base::hash_path(path));
  ASSERT_TRUE(pin);
  EXPECT_TRUE(pin->is_from_cluster());
  EXPECT_EQ(pin->rights, region->own_rights()) << "this process has opened it";
}

// An open of a program, which finds the record in a tier of this node.
struct TierRightsTest : RemoteFillTest {
  TierRightsTest() { parts.tiers.add(other); }
  OpenOutcome open() {
    return DemandOpen(parts, tests::request_for(path)).open(base::hash_path(path));
  }
  std::uint64_t count(base::Counter counter) const {
    return parts.stats().counters[static_cast<std::size_t>(counter)].load();
  }
};

// Another node has moved the directory, and has put a link to it in its place.
TEST_F(TierRightsTest, RecordIsDroppedIfTheDirectoryBehindALinkMoves) {
  const std::string moved = dir.path() + "-moved";
  ASSERT_EQ(rename(dir.path().c_str(), moved.c_str()), 0);
  ASSERT_EQ(symlink(moved.c_str(), dir.path().c_str()), 0);
  for (const bool is_ahead : {false, true}) {
    BackgroundFill fill(parts, path, false);
    EXPECT_TRUE(is_ahead ? take(fill) == Remote::published : static_cast<bool>(open().pin));
    EXPECT_EQ(in_memory(), bytes);
    // From here on, the path may lead to other files.
    changes.tree_changed(moved);
    EXPECT_EQ(in_memory(), "") << is_ahead;
  }
  EXPECT_EQ(unlink(dir.path().c_str()), 0);
  EXPECT_EQ(rename(moved.c_str(), dir.path().c_str()), 0);
}

TEST_F(TierRightsTest, RecordOfAPathWithoutLinksStaysPhysical) {
  const OpenOutcome outcome = open();
  ASSERT_TRUE(outcome.pin);
  EXPECT_TRUE(outcome.pin->is_physical());
}

TEST_F(TierRightsTest, RecordOfTheSameRightsCostsAStat) {
  EXPECT_TRUE(open().pin);
  EXPECT_EQ(count(base::Counter::origin_stats), 1U);
  EXPECT_EQ(count(base::Counter::origin_opens), 0U);
}

TEST_F(TierRightsTest, RecordOfOtherRightsCostsAnOpenAndNoRead) {
  for (const std::uint64_t rights : {other.record->rights + 2, std::uint64_t{0}}) {
    other.record->rights = rights;
    parts.ram.mark_stale(path);
    const std::uint64_t opens = count(base::Counter::origin_opens);
    EXPECT_TRUE(open().pin);
    EXPECT_EQ(count(base::Counter::origin_opens), opens + 1);
    EXPECT_EQ(count(base::Counter::origin_reads), 0U);
  }
}

// A pack can hold a file that the mount refuses. The record of an earlier job with the pack has the
// same stat as the file on the mount, and the rights of this process.
TEST_F(TierRightsTest, RecordOfAPackDoesNotAnswerForTheMount) {
  other.record->origin = 5;
  const OpenOutcome outcome = open();
  ASSERT_TRUE(outcome.pin);
  EXPECT_EQ(outcome.pin->origin, k_mounts);
  EXPECT_EQ(count(base::Counter::origin_opens), 1U) << "the mount decides";
}

TEST_F(TierRightsTest, RecordOfAFileThatTheProcessMayNotOpenIsHidden) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  // The server refuses by its own rules, although everything that the node knows about the file
  // allows it.
  ASSERT_EQ(chown(path.c_str(), 1234, 1234), 0);
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  other.record->stat = *stat_path(AT_FDCWD, path.c_str(), 0);
  other.record->rights += 2;
  Child child([&] {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3]{};
    CHILD_CHECK(syscall(SYS_capset, &header, none) == 0);
    const OpenOutcome outcome = open();
    CHILD_CHECK(!outcome.pin && outcome.error == EACCES);
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(RemoteFillTest, TakesARecordOfItsJobWithoutRevalidation) {
  other.is_of_our_job = true;
  bool has_looked = false;
  during_look = [&] { has_looked = true; };
  BackgroundFill fill(parts, path, false);
  EXPECT_EQ(take(fill), Remote::published);
  EXPECT_FALSE(has_looked);
  EXPECT_EQ(in_memory(), bytes);
}

TEST_F(RemoteFillTest, DoesNotAskIfNoTierWouldAnswer) {
  other.answers = false;
  BackgroundFill fill(parts, path, false);
  EXPECT_EQ(take(fill), Remote::absent);
  EXPECT_EQ(other.asked, 0U);
}

TEST_F(RemoteFillTest, AnotherVersionIsAbsent) {
  other.record->stat.modified.seconds -= 1;
  BackgroundFill fill(parts, path, false);
  EXPECT_EQ(take(fill), Remote::absent);
  EXPECT_EQ(in_memory(), "");
}

TEST_F(RemoteFillTest, ALargerFileThanWantedIsAbsentAndNotAskedFor) {
  BackgroundFill fill(parts, path, false);
  EXPECT_EQ(take(fill, bytes.size() - 1), Remote::absent);
  EXPECT_EQ(other.asked, 0U);
  other.is_of_our_job = true;
  BackgroundFill without_look(parts, path + "2", false);
  EXPECT_EQ(take(without_look, bytes.size() - 1), Remote::absent);
}

// The stat is older than the end of the writer, and the writer leaves the file's times unchanged.
TEST_F(RemoteFillTest, AWriterThatEndsWhileTheAnswerIsOnItsWayLeavesNoOldBytes) {
  writing_begins(*region, stat);
  bool has_ended = false;
  // The answer arrives when no process has the file open any more.
  other.before_answer = [&] { write_and_close(), has_ended = true; };
  BackgroundFill fill(parts, path, false);
  const Remote found = take(fill);
  // The file is known to be open for writing, so the other node is not even asked.
  EXPECT_TRUE(found == Remote::absent || found == Remote::refused);
  EXPECT_EQ(in_memory(), "");
  if (!has_ended) write_and_close();
}

TEST_F(RemoteFillTest, FileThatIsOpenForWritingIsNotAskedFor) {
  writing_begins(*region, stat);
  BackgroundFill fill(parts, path, false);
  EXPECT_EQ(take(fill), Remote::absent);
  EXPECT_EQ(other.asked, 0U);
  changes.writing_ends(stat);
}

TEST_F(RemoteFillTest, AWriterThatComesAndEndsMeanwhileLeavesNoOldBytes) {
  other.before_answer = [&] {
    writing_begins(*region, stat);
    write_and_close();
  };
  BackgroundFill fill(parts, path, false);
  EXPECT_NE(take(fill), Remote::published);
  EXPECT_EQ(in_memory(), "");
}

TEST_F(RemoteFillTest, WriterThatEndsDuringTheRevalidationLeavesNoOldBytes) {
  for (auto* const when : {&during_look, &after_look}) {
    writing_begins(*region, stat);
    *when = [&] { write_and_close(); };
    BackgroundFill fill(parts, path, false);
    EXPECT_EQ(take(fill), Remote::absent);
    EXPECT_EQ(in_memory(), "");
    *when = [] {};
  }
}

TEST_F(RemoteFillTest, GivesTheFetchBackOnce) {
  other.record->stat.modified.seconds -= 1;
  {
    BackgroundFill fill(parts, path, false);
    EXPECT_EQ(take(fill), Remote::absent);
    fill.give_up();
    EXPECT_EQ(other.given_back, 1U);
  }
  EXPECT_EQ(other.given_back, 1U);
}

}  // namespace
}  // namespace cube::cache
