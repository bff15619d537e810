#include "cache/base/process/mount_table.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <string>

#include "tests/support/child.h"
#include "tests/support/temp_dir.h"

namespace cube::base {
namespace {

bool make_mount(const char* from, const std::string& at, const char* type) {
  return mount(from, at.c_str(), type, 0, nullptr) == 0;
}

struct MountTable : testing::Test {
  tests::TempDir dir;
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
  }
  // Runs `body` in a mount namespace of its own.
  template <typename Body>
  int run_apart(Body&& body) const {
    return tests::run_in_child([&] {
      CHILD_CHECK(unshare(CLONE_NEWNS) == 0 &&
                  mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0);
      return body();
    });
  }
};

TEST_F(MountTable, ShowsEachMountOnce) {
  EXPECT_EQ(run_apart([&] {
              // More than fits into the buffer.
              for (int i = 0; i < 100; ++i) {
                const std::string point = dir.path() + "/" + std::to_string(i);
                CHILD_CHECK(mkdir(point.c_str(), 0755) == 0 && make_mount("x", point, "tmpfs"));
              }
              int found = 0;
              const bool is_whole = for_each_mount([&](std::string_view line) {
                found += line.find(dir.path() + "/") != std::string_view::npos ? 1 : 0;
              });
              CHILD_CHECK(is_whole);
              CHILD_CHECK(found == 100);
              return 0;
            }),
            0);
}

TEST_F(MountTable, HasNoMountAtRootAfterChrootToAPlainDirectory) {
  const std::string proc = dir.path() + "/proc";
  EXPECT_EQ(run_apart([&] {
              CHILD_CHECK(has_mount_at_root());
              CHILD_CHECK(mkdir(proc.c_str(), 0755) == 0 && make_mount("proc", proc, "proc"));
              CHILD_CHECK(chroot(dir.path().c_str()) == 0);
              CHILD_CHECK(for_each_mount([](std::string_view) {}));
              CHILD_CHECK(!has_mount_at_root());
              return 0;
            }),
            0);
}

TEST_F(MountTable, IsIncompleteIfItCannotBeRead) {
  EXPECT_EQ(run_apart([&] {
              CHILD_CHECK(chroot(dir.path().c_str()) == 0);
              CHILD_CHECK(!for_each_mount([](std::string_view) {}));
              CHILD_CHECK(!has_mount_at_root());
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace cube::base
