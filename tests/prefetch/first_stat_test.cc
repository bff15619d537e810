// The stat with which a fetch begins, on a mount that keeps attributes and names.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "cache/origin/mount_file.h"
#include "tests/bench/lagfs/mount.h"

namespace cube::cache {
namespace {

class FirstStat : public lagfs::testing::LagfsTest {
 protected:
  void SetUp() override {
    LagfsTest::SetUp();
    write("old");
    mount_.start(lagfs::testing::fast());
    ASSERT_TRUE(mount_.is_mounted());
  }
  void write(const std::string& text) const { std::ofstream(mount_.source("f")) << text; }
  std::int64_t kept_size() const {
    struct ::stat st {};
    return ::stat(mount_.at("f").c_str(), &st) == 0 ? st.st_size : -1;
  }
};

TEST_F(FirstStat, ComesFromTheServerIfTheMountCachesAnOldOne) {
  ASSERT_EQ(kept_size(), 3);
  write("new and longer");
  ASSERT_EQ(kept_size(), 3) << "the mount has not kept the attributes";
  const auto file = MountFile::open(mount_.at("f").c_str(), O_RDONLY, nullptr);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->stat().size, 14U);
}

TEST_F(FirstStat, NeedsOnlyTheLookupOfANewName) {
  // The kernel knows the directory, as it does after the first file in it.
  ASSERT_EQ(::access(mount_.target().c_str(), F_OK), 0);
  mount_.reset();
  const auto file = MountFile::open(mount_.at("f").c_str(), O_RDONLY, nullptr);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->stat().size, 3U);
  EXPECT_EQ(
      mount_.json_number("lookup", "data_files") + mount_.json_number("getattr", "data_files"), 1U);
}

}  // namespace
}  // namespace cube::cache
