// A pack as a directory: the targets of links, and the errors for missing paths.
#include "cache/pack/pack_mount.h"

#include "tests/pack/sample_tree.h"

namespace cube::cache {
namespace {

using tests::SampleTree;

struct PackMountTest : testing::Test {
  SampleTree tree;
  std::unique_ptr<PackMount> mount;

  void link(const std::string& target, const std::string& name) {
    std::filesystem::create_directories(
        std::filesystem::path(tree.root + "/" + name).parent_path());
    std::filesystem::create_symlink(target, tree.root + "/" + name);
  }
  void mount_it(const std::string& prefix = "/pack") {
    ASSERT_EQ(tree.make(), "");
    std::string why;
    mount = PackMount::open({.prefix = prefix, .file = tree.pack}, why);
    ASSERT_NE(mount, nullptr) << why;
  }
  // Returns 0 if the path exists.
  int find(const std::string& path, bool follows = true) const {
    PackMount::FoundName found;
    const auto result = mount->find(mount->prefix() + "/" + path, follows, found);
    return result ? 0 : result.error().value;
  }
  int read(const std::string& path) const {
    base::Scratch scratch;
    PackMount::Content content;
    const auto result = mount->read(mount->prefix() + "/" + path, 1 << 20, scratch, content);
    return result ? 0 : result.error().value;
  }
};

TEST_F(PackMountTest, LinkOutOfThePackDoesNotReachAnInnerFileOfThatName) {
  tree.write("outside", "inside, by the name of what lies outside");
  tree.write("b/x", "x");
  link("../../outside", "b/out");
  link("../outside", "b/in");
  link("../../../../outside", "far");
  mount_it();
  EXPECT_EQ(find("b/in"), 0);
  EXPECT_EQ(read("b/in"), 0);
  for (const char* name : {"b/out", "far", "b/out/x"}) {
    EXPECT_EQ(find(name), ENOENT) << name;
    EXPECT_EQ(read(name), ENOENT) << name;
  }
}

TEST_F(PackMountTest, AnAbsoluteLinkLeadsOutUnlessItIsBelowThePrefix) {
  tree.write("outside", "1");
  tree.write("d/x", "2");
  // "/else" is as long as the prefix, and the rest of the path exists in the pack.
  link("/else/outside", "of another");
  link("/packs/outside", "of a longer one");
  link("/pack/d/x", "own");
  link("/pack", "root");
  mount_it();
  for (const char* name : {"of another", "of a longer one"}) {
    EXPECT_EQ(find(name), ENOENT) << name;
    EXPECT_EQ(read(name), ENOENT) << name;
  }
  EXPECT_EQ(find("own"), 0);
  EXPECT_EQ(read("own"), 0);
  EXPECT_EQ(find("root/d/x"), 0);
}

// The search follows different code if links can lead to the path, so both cases are tested.
TEST_F(PackMountTest, ErrorsMatchThoseOfAFileSystem) {
  tree.write("d/f", "1");
  tree.write("d/e/g", "2");
  const std::string longest(255, 'n'), longer(256, 'n');
  for (const bool with_links : {false, true}) {
    if (with_links) {
      link("e", "d/to_e");
      link("f", "d/to_f");
      link("loop", "d/loop");
      link("nowhere", "d/dangling");
    }
    mount_it();
    for (int round = 0; round < 2; ++round) {
      for (const char* name : {"d/f/x", "d/f/x/y", "d/e/g/x"}) {
        EXPECT_EQ(find(name), ENOTDIR) << name;
        EXPECT_EQ(read(name), ENOTDIR) << name;
      }
      for (const std::string& name :
           {std::string("d/none"), std::string("none/x/y"), "d/" + longest, "none/" + longer}) {
        EXPECT_EQ(find(name), ENOENT) << name;
        EXPECT_EQ(read(name), ENOENT) << name;
      }
      EXPECT_EQ(find("d/" + longer), ENAMETOOLONG);
      EXPECT_EQ(read("d/e/" + longer + "/x"), ENAMETOOLONG);
      EXPECT_EQ(find("d/f/" + longer), ENOTDIR);
    }
    if (!with_links) continue;
    EXPECT_EQ(find("d/to_f/x"), ENOTDIR);
    EXPECT_EQ(find("d/to_e/g"), 0);
    EXPECT_EQ(find("d/to_e/none"), ENOENT);
    EXPECT_EQ(find("d/to_e/" + longer), ENAMETOOLONG);
    EXPECT_EQ(find("d/loop"), ELOOP);
    EXPECT_EQ(find("d/loop/x"), ELOOP);
    EXPECT_EQ(find("d/loop", /*follows=*/false), 0);
    EXPECT_EQ(find("d/dangling"), ENOENT);
    EXPECT_EQ(find("d/dangling/x"), ENOENT);
  }
}

struct RewrittenPack : PackMountTest {
  // Another pack with the same names and sizes, and so with the same header.
  std::string other;
  void SetUp() override {
    tree.write("d/f", "old bytes");
    tree.write("d/g", "old bytes");
    mount_it();
    const std::string old = tests::bytes_of(tree.pack);
    tree.write("d/f", "new bytes");
    tree.write("d/g", "new bytes");
    ASSERT_EQ(tree.make(), "");
    other = tests::bytes_of(tree.pack);
    ASSERT_EQ(old.size(), other.size());
    ASSERT_TRUE(tests::TempDir::write_file(tree.pack, old));
    std::string why;
    mount = PackMount::open({.prefix = "/pack", .file = tree.pack}, why);
    ASSERT_NE(mount, nullptr) << why;
    ASSERT_EQ(read("d/f"), 0);
  }
  void put(const std::string& bytes, std::size_t at) const {
    const int fd = ::open(tree.pack.c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_EQ(pwrite(fd, bytes.data() + at, bytes.size() - at, static_cast<off_t>(at)),
              static_cast<ssize_t>(bytes.size() - at));
    ::close(fd);
  }
  void set_time(std::int64_t seconds) const {
    const struct ::timespec times[2] = {{seconds, 0}, {seconds, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, tree.pack.c_str(), times, 0), 0);
  }
};

TEST_F(RewrittenPack, FailsInsteadOfServingTheNewBytes) {
  put(other, 0);
  set_time(1'000'000'000);
  for (const char* name : {"d/f", "d/g", "d", "none"}) {
    EXPECT_EQ(find(name), EIO) << name;
    EXPECT_EQ(read(name), EIO) << name;
  }
  EXPECT_FALSE(mount->reader().is_untouched());
}

TEST_F(RewrittenPack, IsDetectedByItsHeaderIfItsTimeIsRestored) {
  const auto before = *stat_path(AT_FDCWD, tree.pack.c_str(), 0);
  std::string changed = tests::bytes_of(tree.pack);
  changed[100] = static_cast<char>(changed[100] ^ 1);
  put(changed, 0);
  const struct ::timespec time {
    before.modified.seconds, static_cast<long>(before.modified.nanoseconds)
  };
  const struct ::timespec times[2] = {time, time};
  ASSERT_EQ(utimensat(AT_FDCWD, tree.pack.c_str(), times, 0), 0);
  EXPECT_EQ(read("d/g"), EIO);
}

TEST_F(RewrittenPack, StaysUsableIfOnlyRenamedOrGivenOtherRights) {
  ASSERT_EQ(::rename(tree.pack.c_str(), (tree.pack + ".old").c_str()), 0);
  EXPECT_EQ(read("d/g"), 0);
  ASSERT_EQ(::chmod((tree.pack + ".old").c_str(), 0600), 0);
  EXPECT_EQ(find("d/f"), 0);
  EXPECT_EQ(find("d/none"), ENOENT);
}

}  // namespace
}  // namespace cube::cache
