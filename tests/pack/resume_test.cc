// The build of a pack is interrupted and continued. The pack has the same bytes as without the
// interruption.
#include <cstring>

#include "tests/pack/sample_tree.h"

namespace cube::cache {
namespace {

using tests::SampleTree;

struct PackResume : testing::Test {
  SampleTree tree;
  std::string reference = tree.dir / "reference.cube", partial = tree.pack + ".partial";

  void SetUp() override { tree.fill(); }

  // Stops after this many checks whether to continue.
  void stop_after(int looks) {
    auto build = tree.build();
    build.go_on = [left = looks](const PackHeader&) mutable { return left-- > 0; };
    ASSERT_EQ(tree.make(build), "stopped");
    ASSERT_FALSE(std::filesystem::exists(tree.pack));
  }
  // Writes the rest, and compares the pack with a pack that was made in one run. Returns how many
  // entries were already there.
  std::uint64_t finish() {
    std::uint64_t resumed = 0;
    EXPECT_EQ(tree.make(tree.build(), &resumed), "");
    auto build = tree.build();
    build.file = reference;
    EXPECT_EQ(tree.make(build), "");
    EXPECT_TRUE(tests::bytes_of(tree.pack) == tests::bytes_of(reference));
    EXPECT_FALSE(std::filesystem::exists(partial));
    return resumed;
  }
};

TEST_F(PackResume, ContinuesWhereItWasStopped) {
  std::uint64_t last = 0;
  for (const int looks : {1, 5, 12, 20, 25}) {
    stop_after(looks);
    const std::uint64_t resumed = finish();
    EXPECT_GE(resumed, last);
    last = resumed;
    std::filesystem::remove(tree.pack);
  }
  EXPECT_GT(last, 100U);
}

TEST_F(PackResume, RewritesCutOrTornRecords) {
  stop_after(20);
  const std::string left = tests::bytes_of(partial);
  ASSERT_GT(left.size(), 80'000U);
  PackJournal journal{};
  std::memcpy(&journal, left.data(), sizeof journal);
  // No part of the pack was safe, as after a power cut.
  journal.safe_end = k_pack_records_begin;
  journal.hash = hash_of(journal);
  for (const double share : {0.001, 0.1, 0.5, 0.9, 0.999}) {
    const auto cut = static_cast<std::size_t>(static_cast<double>(left.size()) * share);
    std::string short_one = left.substr(0, cut), torn = left;
    std::memset(torn.data() + cut, 0, std::min<std::size_t>(5000, torn.size() - cut));
    for (std::string* const bytes : {&short_one, &torn}) {
      if (bytes->size() >= sizeof journal) std::memcpy(bytes->data(), &journal, sizeof journal);
      ASSERT_TRUE(tests::TempDir::write_file(partial, *bytes));
      finish();
      ASSERT_FALSE(HasFailure()) << share << (bytes == &torn ? " torn" : " cut short");
      std::filesystem::remove(tree.pack);
    }
  }
}

TEST_F(PackResume, ReadsChangedFilesAgain) {
  stop_after(20);
  // The changes: of the same size, in place; of another size; gone; new.
  tree.write("many/d0/f0", tests::content_of(200, 999));
  EXPECT_GT(finish(), 100U) << "what comes after it is kept";
  std::filesystem::remove(tree.pack);
  stop_after(20);
  tree.write("many/d1/f1", tests::content_of(5000, 999));
  finish();
  std::filesystem::remove(tree.pack);
  stop_after(20);
  std::filesystem::remove(tree.root + "/many/d2/f2");
  tree.files.erase("many/d2/f2");
  finish();
  std::filesystem::remove(tree.pack);
  stop_after(20);
  tree.write("many/d0/0", "new");
  finish();
  const auto pack = tree.open();
  for (const auto& [path, content] : tree.files) {
    const auto entry = pack->find(path);
    int error = 0;
    ASSERT_TRUE(entry) << path;
    EXPECT_EQ(tests::read_all(*pack, *entry, error), content) << path;
  }
}

TEST_F(PackResume, EntryThatWouldBeWrittenDifferentlyIsNotTheSame) {
  const auto origin = stat_path(AT_FDCWD, (tree.root + "/a/x").c_str(), 0);
  ASSERT_TRUE(origin);
  const FileStat packed = packed_stat(*origin, 3);
  EXPECT_TRUE(is_same_entry(packed, *origin));
  FileStat other = *origin;
  other.accessed.seconds += 10;
  EXPECT_TRUE(is_same_entry(packed, other)) << "reading it changes nothing";
  // When a file system writes a file to its disk later, the number of blocks can change.
  other = *origin;
  other.blocks += 8;
  EXPECT_FALSE(is_same_entry(packed, other));
  other = *origin;
  other.mode ^= 1;
  EXPECT_FALSE(is_same_entry(packed, other));
}

TEST_F(PackResume, OtherArgumentsStartOver) {
  stop_after(20);
  SampleTree other;
  other.write("only", "1");
  auto build = other.build();
  build.file = tree.pack;
  std::uint64_t resumed = 1;
  ASSERT_EQ(other.make(build, &resumed), "");
  EXPECT_EQ(resumed, 0U);
  EXPECT_EQ(tree.open()->header().files, 1U);
}

TEST_F(PackResume, GarbageInPlaceOfThePartialFileIsReplaced) {
  ASSERT_TRUE(tests::TempDir::write_file(partial, tests::content_of(100'000, 5)));
  EXPECT_EQ(finish(), 0U);
}

}  // namespace
}  // namespace cube::cache
