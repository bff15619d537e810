// Builds packs from trees.
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>

#include "tests/pack/sample_tree.h"

namespace cube::cache {
namespace {

using tests::SampleTree;

struct PackBuilderTest : testing::Test {
  SampleTree tree;
};

TEST_F(PackBuilderTest, SameTreeGivesTheSameBytes) {
  tree.fill();
  ASSERT_EQ(tree.make(), "");
  const std::string first = tests::bytes_of(tree.pack);
  auto again = tree.build();
  again.file = tree.dir / "again.cube";
  again.threads = 1;
  ASSERT_EQ(tree.make(again), "");
  EXPECT_TRUE(first == tests::bytes_of(again.file));
  EXPECT_FALSE(std::filesystem::exists(tree.pack + ".partial"));
}

TEST_F(PackBuilderTest, DirectoriesThatDoNotFitInMemoryAreWrittenSooner) {
  tree.fill();
  auto build = tree.build();
  build.most_waiting = 1;
  ASSERT_EQ(tree.make(build), "");
  const auto pack = tree.open();
  ASSERT_TRUE(pack->find("a"));
  ASSERT_TRUE(pack->find("a.b"));
  EXPECT_LT(pack->find("a")->offset, pack->find("a.b")->offset);
  for (int i = 0; i < 7; ++i) EXPECT_TRUE(pack->find("many/d" + std::to_string(i)));
  PackScan scan = pack->scan();
  PackEntry entry;
  std::string_view path;
  std::uint64_t entries = 0;
  while (scan.next(entry, path) == PackScan::Next::record) ++entries;
  EXPECT_EQ(entries, pack->header().entries) << "none is written twice";
}

TEST_F(PackBuilderTest, PathOfADirectoryCountsTowardsItsMemory) {
  const std::string name(200, 'n');
  for (int i = 0; i < 8; ++i) tree.write("in/" + name + std::to_string(i) + "/f", "1");
  auto build = tree.build();
  build.most_waiting = 1000;  // five listings of one name fit, but not five paths
  ASSERT_EQ(tree.make(build), "");
  const auto pack = tree.open();
  const auto first = pack->find("in/" + name + "0"), later = pack->find("in/" + name + "5/f");
  ASSERT_TRUE(first && later);
  EXPECT_LT(first->offset, later->offset);
}

TEST_F(PackBuilderTest, AnEmptyTreeIsAPackOfOneDirectory) {
  ASSERT_EQ(tree.make(), "");
  const auto pack = tree.open();
  EXPECT_EQ(pack->header().entries, 1U);
  EXPECT_TRUE(pack->find(""));
  EXPECT_FALSE(pack->find("a"));
}

TEST_F(PackBuilderTest, ReportsSpecialFilesAndMarksTheirDirectoryIncomplete) {
  tree.write("d/f", "1");
  ASSERT_EQ(mkfifo((tree.root + "/d/fifo").c_str(), 0600), 0);
  ASSERT_EQ(tree.make(), "");
  EXPECT_EQ(tree.skipped, std::vector<std::string>{"d/fifo: not regular files"});
  const auto pack = tree.open();
  EXPECT_EQ(pack->find("d/fifo").error().value, ENOENT);
  int error = 0;
  const std::string inner = tests::read_all(*pack, *pack->find("d"), error),
                    outer = tests::read_all(*pack, *pack->find(""), error);
  EXPECT_FALSE(PackListingReader(inner).is_complete());
  EXPECT_TRUE(PackListingReader(outer).is_complete());
}

TEST_F(PackBuilderTest, PacksOnlyListedPathsAndTheirParents) {
  tree.fill();
  TreePaths paths;
  for (const char* const path :
       {"sizes/1000", "many/d1/f1", "many/d1/none", "odd/link", "odd/link/below", "empty"})
    paths.add(path);
  paths.sort();
  auto build = tree.build();
  build.list = &paths;
  ASSERT_EQ(tree.make(build), "");
  EXPECT_EQ(tree.skipped, (std::vector<std::string>{"many/d1/none: missing",
                                                    "odd/link/below: below a link or a file"}));
  const auto pack = tree.open();
  EXPECT_EQ(pack->header().files, 2U);
  EXPECT_EQ(pack->header().links, 1U);
  for (const char* const path : {"", "sizes", "sizes/1000", "many", "many/d1", "many/d1/f1", "odd",
                                 "odd/link", "empty", "empty/nested"})
    EXPECT_TRUE(pack->find(path)) << path;
  EXPECT_EQ(pack->header().entries, 10U);
  int error = 0;
  const std::string above = tests::read_all(*pack, *pack->find(""), error),
                    whole = tests::read_all(*pack, *pack->find("empty"), error);
  EXPECT_FALSE(PackListingReader(above).is_complete());
  EXPECT_TRUE(PackListingReader(whole).is_complete());
}

TEST_F(PackBuilderTest, APackInItsOwnTreeIsRefused) {
  tree.write("d/f", "1");
  auto build = tree.build();
  build.file = tree.root + "/d/set.cube";
  EXPECT_NE(tree.make(build).find("cannot lie in the directory that is packed"), std::string::npos);
  // A symbolic link gives the directory another name.
  std::filesystem::create_symlink(tree.root + "/d", tree.dir / "elsewhere");
  build.file = tree.dir / "elsewhere/set.cube";
  EXPECT_NE(tree.make(build).find("cannot lie in the directory that is packed"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(tree.root + "/d/set.cube.partial"));
}

TEST_F(PackBuilderTest, ALargeFileThatGrowsWhileItIsReadIsLeftOut) {
  auto writer = PackWriter::open({.file = tree.pack, .arguments_hash = 1});
  ASSERT_TRUE(writer);
  FileStat stat{};
  stat.mode = S_IFREG | 0644;
  stat.size = 5'000'000;
  for (const std::size_t given :
       {std::size_t{4'999'999}, std::size_t{5'000'001}, std::size_t{9'000'000}}) {
    std::size_t left = given;
    const auto added = (*writer)->add_streamed({.path = "f", .stat = stat}, stat.size,
                                               [&](std::byte* to, std::size_t n) {
                                                 n = std::min(n, left);
                                                 left -= n;
                                                 std::memset(to, 7, n);
                                                 return base::Result<std::size_t>(n);
                                               });
    ASSERT_FALSE(added);
    EXPECT_EQ(added.error().value, ESTALE);
    EXPECT_TRUE((*writer)->has_failed_in_source());
  }
  FileStat root{};
  root.mode = S_IFDIR | 0755;
  const PackListing none{};
  ASSERT_TRUE((*writer)->add({.path = "", .kind = RecordKind::directory, .stat = root},
                             std::as_bytes(std::span(&none, 1))));
  ASSERT_TRUE((*writer)->finish());
  const auto pack = tree.open();
  ASSERT_NE(pack, nullptr);
  EXPECT_EQ(pack->header().entries, 1U);
  PackScan scan = pack->scan();
  PackEntry entry;
  std::string_view path;
  EXPECT_EQ(scan.next(entry, path), PackScan::Next::record);
  EXPECT_EQ(scan.next(entry, path), PackScan::Next::end) << "nothing is left of what failed";
}

TEST_F(PackBuilderTest, NameThatReadersRejectIsReportedAndSkipped) {
  // Some mounts have such names; on others, they can come only from a list.
  const std::string name(256, 'n');
  tree.write("f", "1");
  TreePaths paths;
  paths.add(name);
  paths.add("f");
  paths.sort();
  auto build = tree.build();
  build.list = &paths;
  ASSERT_EQ(tree.make(build), "");
  EXPECT_EQ(tree.skipped,
            std::vector<std::string>{name + ": longer than NAME_MAX or PATH_MAX allows"});
  EXPECT_EQ(tree.open()->header().entries, 2U);
}

TEST_F(PackBuilderTest, LinkWithAnInvalidTargetIsDamage) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{PATH_MAX}}) {
    auto writer = PackWriter::open({.file = tree.pack, .arguments_hash = 1});
    ASSERT_TRUE(writer);
    FileStat stat{};
    stat.mode = S_IFLNK | 0777;
    const std::string target(size, 't');
    ASSERT_TRUE((*writer)->add({.path = "l", .kind = RecordKind::link, .stat = stat},
                               std::as_bytes(std::span(target))));
    ASSERT_TRUE((*writer)->finish());
    EXPECT_EQ(tree.open()->find("l").error().value, EBADMSG) << size;
  }
}

TEST(Crew, CallerDoesTheWorkWithoutThreads) {
  Crew crew(0);
  std::size_t sum = 0;
  crew.run(10, [&](std::size_t i) { sum += i; });
  EXPECT_EQ(sum, 45U);
}

TEST_F(PackBuilderTest, AllowsOneWriterAtATime) {
  const auto first = PackWriter::open({.file = tree.pack, .arguments_hash = 1});
  ASSERT_TRUE(first);
  EXPECT_NE(tree.make().find("another cubeshim pack is writing"), std::string::npos);
}

TEST_F(PackBuilderTest, AFullDiskIsReportedAndTheRestIsKept) {
  const tests::TmpfsMount small("3m");
  if (!small.is_mounted()) GTEST_SKIP() << "needs root";
  tree.write("f", tests::content_of(5'000'000, 1));
  auto build = tree.build();
  build.file = small.path() + "/set.cube";
  EXPECT_NE(tree.make(build).find("set.cube.partial: No space left on device"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(build.file));
}

}  // namespace
}  // namespace cube::cache
