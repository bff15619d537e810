// Files that were changed, renamed or removed. Their records are dropped under each name by which
// the files were read.
#include <gtest/gtest.h>

#include "tests/cache/writers_fixture.h"

namespace cube::cache {
namespace {

using base::Counter;
using tests::request_for;

TEST_F(WritersTest, ContentChangedDropsTheRecord) {
  const std::string path = dir.write("f", "old");
  EXPECT_EQ(open(path), "old");
  tests::TempDir::write_file(path, "new!");
  const FileStat stat = stat_of(path);
  cache->changes().content_changed(path, &stat);
  EXPECT_EQ(cache.count(Counter::stale_marked), 1U);
  EXPECT_EQ(open(path), "new!");
}

TEST_F(WritersTest, ContentChangedWithoutAStatDropsTheRecord) {
  const std::string path = dir.write("f", "old");
  EXPECT_EQ(open(path), "old");
  unlink(path.c_str());
  cache->changes().content_changed(path, nullptr);
  EXPECT_EQ(cache->open(request_for(path)).error, ENOENT);
}

TEST_F(WritersTest, ContentChangedByAHardLinkDropsBoth) {
  const std::string path = dir.write("f", "old"), other = dir / "g";
  ASSERT_EQ(link(path.c_str(), other.c_str()), 0);
  EXPECT_EQ(open(path), "old");
  tests::TempDir::write_file(other, "new");
  const FileStat stat = stat_of(other);
  cache->changes().content_changed(other, &stat);
  EXPECT_EQ(open(path), "new");
}

TEST_F(WritersTest, ContentChangedByRealNameDropsTheRecordReadThroughALink) {
  const std::string path = dir.write("f", "old");
  ASSERT_EQ(symlink("f", (dir / "link").c_str()), 0);
  EXPECT_EQ(open(dir / "link"), "old");
  tests::TempDir::write_file(path, "new");
  const FileStat stat = stat_of(path);
  cache->changes().content_changed(path, &stat);
  EXPECT_EQ(open(dir / "link"), "new");
}

// A record that was read by its real name must also be found by its inode.
TEST_F(WritersTest, ContentChangedThroughALinkDropsTheRecordReadByRealName) {
  const std::string path = dir.write("f", "old");
  ASSERT_EQ(symlink("f", (dir / "link").c_str()), 0);
  EXPECT_EQ(open(path), "old");
  tests::TempDir::write_file(dir / "link", "new");
  const FileStat stat = stat_of(path);
  cache->changes().content_changed(dir / "link", &stat);
  EXPECT_EQ(open(path), "new");
}

TEST_F(WritersTest, ContentChangedByAHardLinkMadeAfterTheReadDropsTheRecord) {
  const std::string path = dir.write("f", "old"), other = dir / "g";
  EXPECT_EQ(open(path), "old");
  ASSERT_EQ(link(path.c_str(), other.c_str()), 0);
  tests::TempDir::write_file(other, "new");
  const FileStat stat = stat_of(other);
  cache->changes().content_changed(other, &stat);
  EXPECT_EQ(open(path), "new");
}

TEST_F(WritersTest, TreeChangedDropsAllBelow) {
  mkdir((dir / "d").c_str(), 0755);
  const std::string in = dir.write("d/f", "old"), out = dir.write("f", "old");
  EXPECT_EQ(open(in), "old");
  EXPECT_EQ(open(out), "old");
  rename((dir / "d").c_str(), (dir / "e").c_str());
  cache->changes().tree_changed(dir / "d");
  EXPECT_EQ(cache->open(request_for(in)).error, ENOENT);
  EXPECT_EQ(open(out), "old");
  EXPECT_EQ(cache.count(Counter::hits_ram), 1U);
}

TEST_F(WritersTest, MappableCopyReplacesTheRecord) {
  const std::string path = dir.write("f", "old");
  const OpenOutcome first = cache->open(request_for(path));
  ASSERT_TRUE(first.pin);
  EXPECT_FALSE(first.pin->is_mappable());
  const auto copy = cache->make_mappable(*first.pin);
  ASSERT_TRUE(copy);
  EXPECT_TRUE((*copy)->is_mappable());
  EXPECT_TRUE(tests::is_sound(cache->region(), **copy));
  EXPECT_EQ(cache->region().offset_of((*copy)->data()) % k_page, 0U);
  const OpenOutcome second = cache->open(request_for(path));
  ASSERT_TRUE(second.pin);
  EXPECT_EQ(&*second.pin, &**copy);
  EXPECT_EQ(bytes(second), "old");
}

// The old record is no longer in the index, but it must still be marked. Otherwise, files that are
// open on it would serve the old bytes, and a second copy of the record would make these bytes
// visible again.
TEST_F(WritersTest, RecordReplacedByAMappableCopyIsStillMarked) {
  const std::string path = dir.write("f", "old");
  const OpenOutcome first = cache->open(request_for(path));
  ASSERT_TRUE(first.pin);
  ASSERT_TRUE(cache->make_mappable(*first.pin));
  tests::TempDir::write_file(path, "new");
  const FileStat stat = stat_of(path);
  cache->changes().content_changed(path, &stat);
  EXPECT_TRUE(first.pin->is_stale());
  EXPECT_FALSE(cache->make_mappable(*first.pin));
  EXPECT_EQ(open(path), "new");
}

}  // namespace
}  // namespace cube::cache
