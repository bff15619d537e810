// A disk that returns errors: a lagfs mount whose operations fail on demand.
#include <gtest/gtest.h>

#include <algorithm>

#include "cache/tier/disk/disk_store.h"
#include "tests/bench/lagfs/mount.h"
#include "tests/support/disk_content.h"

namespace cube::cache {
namespace {

using lagfs::testing::LagfsTest;
using tests::append_files;
using tests::look_for_files;
using tests::open_store;

class DiskErrors : public LagfsTest {
 protected:
  void SetUp() override {
    LagfsTest::SetUp();
    if (IsSkipped()) return;
    mount_.start(lagfs::testing::fast());
    f_.options.directory = mount_.target();
  }
  void say(const std::string& line) {
    ASSERT_TRUE(tests::TempDir::write_file(mount_.at(".lagfs/script"), line));
  }
  tests::DiskFixture f_;
};

TEST_F(DiskErrors, AReadErrorIsAMissCountedAndReportedOnce) {
  const auto store = open_store(f_.options);
  ASSERT_NE(store, nullptr);
  ASSERT_EQ(append_files(*store, 0, 100).written, 100U);
  ASSERT_TRUE(store->seal());
  say("fail read EIO 1 50");
  testing::internal::CaptureStderr();
  const auto found = look_for_files(*store, 100);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(found.wrong, 0U);
  EXPECT_GT(found.missing, 0U);
  EXPECT_GT(found.right, 0U);
  EXPECT_EQ(store->status().io_errors, found.missing);
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_NE(said.find("cannot read"), std::string::npos) << said;
}

TEST_F(DiskErrors, WriteErrorAddsNothingAndKeepsExistingRecords) {
  const auto store = open_store(f_.options);
  ASSERT_NE(store, nullptr);
  ASSERT_EQ(append_files(*store, 0, 100).written, 100U);
  say("fail write EIO 1 1000");
  testing::internal::CaptureStderr();
  tests::RamSegment segment;
  ASSERT_TRUE(segment.add("/more", std::string(100'000, 'x')));
  EXPECT_EQ(store->append(segment.bytes(), segment.offsets()).error().value, EIO);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  say("clear");
  EXPECT_EQ(look_for_files(*store, 100).right, 100U);
  EXPECT_EQ(store->append(segment.bytes(), segment.offsets())->written, 1U) << "it is tried again";
}

}  // namespace
}  // namespace cube::cache
