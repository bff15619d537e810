// A record must describe a file exactly as the kernel does, field by field.
#include "cache/record/file_stat.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "cache/base/unique_fd.h"
#include "tests/support/temp_dir.h"

namespace cube::cache {
namespace {

void expect_same(const struct ::stat& a, const struct ::stat& b) {
  EXPECT_EQ(a.st_dev, b.st_dev);
  EXPECT_EQ(a.st_ino, b.st_ino);
  EXPECT_EQ(a.st_mode, b.st_mode);
  EXPECT_EQ(a.st_nlink, b.st_nlink);
  EXPECT_EQ(a.st_uid, b.st_uid);
  EXPECT_EQ(a.st_gid, b.st_gid);
  EXPECT_EQ(a.st_rdev, b.st_rdev);
  EXPECT_EQ(a.st_size, b.st_size);
  EXPECT_EQ(a.st_blksize, b.st_blksize);
  EXPECT_EQ(a.st_blocks, b.st_blocks);
  EXPECT_EQ(a.st_atim.tv_sec, b.st_atim.tv_sec);
  EXPECT_EQ(a.st_atim.tv_nsec, b.st_atim.tv_nsec);
  EXPECT_EQ(a.st_mtim.tv_sec, b.st_mtim.tv_sec);
  EXPECT_EQ(a.st_mtim.tv_nsec, b.st_mtim.tv_nsec);
  EXPECT_EQ(a.st_ctim.tv_sec, b.st_ctim.tv_sec);
  EXPECT_EQ(a.st_ctim.tv_nsec, b.st_ctim.tv_nsec);
  EXPECT_EQ(std::memcmp(&a, &b, sizeof a), 0) << "padding";
}

bool same_time(const struct ::statx_timestamp& a, const struct ::statx_timestamp& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

void expect_same(const struct ::statx& a, const struct ::statx& b) {
  EXPECT_EQ(a.stx_mask, b.stx_mask);
  EXPECT_EQ(a.stx_blksize, b.stx_blksize);
  EXPECT_EQ(a.stx_attributes, b.stx_attributes);
  EXPECT_EQ(a.stx_attributes_mask, b.stx_attributes_mask);
  EXPECT_EQ(a.stx_nlink, b.stx_nlink);
  EXPECT_EQ(a.stx_uid, b.stx_uid);
  EXPECT_EQ(a.stx_gid, b.stx_gid);
  EXPECT_EQ(a.stx_mode, b.stx_mode);
  EXPECT_EQ(a.stx_ino, b.stx_ino);
  EXPECT_EQ(a.stx_size, b.stx_size);
  EXPECT_EQ(a.stx_blocks, b.stx_blocks);
  EXPECT_TRUE(same_time(a.stx_atime, b.stx_atime));
  EXPECT_TRUE(same_time(a.stx_btime, b.stx_btime));
  EXPECT_TRUE(same_time(a.stx_ctime, b.stx_ctime));
  EXPECT_TRUE(same_time(a.stx_mtime, b.stx_mtime));
  EXPECT_EQ(a.stx_rdev_major, b.stx_rdev_major);
  EXPECT_EQ(a.stx_rdev_minor, b.stx_rdev_minor);
  EXPECT_EQ(a.stx_dev_major, b.stx_dev_major);
  EXPECT_EQ(a.stx_dev_minor, b.stx_dev_minor);
  EXPECT_EQ(a.stx_mnt_id, b.stx_mnt_id);
  EXPECT_EQ(std::memcmp(&a, &b, sizeof a), 0) << "a field that is not listed";
}

// Compares our stat of a path with the kernel's.
void expect_as_kernel(const std::string& path, int flags = AT_SYMLINK_NOFOLLOW) {
  SCOPED_TRACE(path);
  const auto ours = stat_path(AT_FDCWD, path.c_str(), flags);
  ASSERT_TRUE(ours);
  struct ::stat kernel {
  }, converted{};
  ASSERT_EQ(::fstatat(AT_FDCWD, path.c_str(), &kernel, flags), 0);
  std::memset(&converted, 0xff, sizeof converted);
  ours->copy_to(converted);
  expect_same(converted, kernel);
  for (const unsigned request :
       {0U, static_cast<unsigned>(STATX_BASIC_STATS), static_cast<unsigned>(STATX_SIZE),
        static_cast<unsigned>(STATX_BTIME), FileStat::k_request}) {
    SCOPED_TRACE(request);
    struct ::statx x {
    }, y{};
    ASSERT_EQ(::statx(AT_FDCWD, path.c_str(), flags, request, &x), 0);
    std::memset(&y, 0xff, sizeof y);
    ours->copy_to(y, request);
    // Since Linux 6.13, statx leaves out times of change that were not requested. The library may
    // return more than was requested.
    if ((x.stx_mask & (STATX_MTIME | STATX_CTIME)) == 0) {
      y.stx_mask &= ~static_cast<unsigned>(STATX_MTIME | STATX_CTIME);
      y.stx_mtime = y.stx_ctime = {};
    }
    expect_same(y, x);
  }
}

TEST(FileStat, MatchesTheKernelForEveryKindOfFile) {
  const tests::TempDir dir;
  expect_as_kernel(dir.write("empty", ""));
  expect_as_kernel(dir.write("file", std::string(100'000, 'x')));
  expect_as_kernel(dir.path());
  ASSERT_EQ(symlink("file", (dir / "link").c_str()), 0);
  expect_as_kernel(dir / "link");
  expect_as_kernel(dir / "link", 0);
  ASSERT_EQ(mkfifo((dir / "fifo").c_str(), 0600), 0);
  expect_as_kernel(dir / "fifo");
  ASSERT_EQ(link((dir / "file").c_str(), (dir / "second").c_str()), 0);
  expect_as_kernel(dir / "second");
  expect_as_kernel("/dev/null");
  expect_as_kernel("/");
  // Other tests change /dev/shm at the same time, so this one uses /sys.
  expect_as_kernel("/sys");
}

TEST(FileStat, KeepsOddModesOwnersTimesAndHoles) {
  const tests::TempDir dir;
  const std::string path = dir.write("odd", "x");
  ASSERT_EQ(chmod(path.c_str(), 07755), 0);
  if (geteuid() == 0) {
    ASSERT_EQ(chown(path.c_str(), 4'000'000'000U, 123'456), 0);
  }
  ASSERT_EQ(truncate(path.c_str(), 5LL << 30), 0);
  const timespec times[2] = {{-5, 123'456'789}, {4'000'000'000, 999'999'999}};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  expect_as_kernel(path);
  expect_as_kernel(dir.write("old", "x"));
}

TEST(FileStat, IsTheSameByFdAndByPath) {
  const tests::TempDir dir;
  const std::string path = dir.write("f", "abc");
  const base::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const auto by_fd = stat_fd(fd.get());
  const auto by_path = stat_path(AT_FDCWD, path.c_str(), 0);
  ASSERT_TRUE(by_fd);
  ASSERT_TRUE(by_path);
  EXPECT_EQ(std::memcmp(&*by_fd, &*by_path, sizeof *by_fd), 0);
  EXPECT_TRUE(by_fd->is_regular());
}

TEST(FileStat, FailsAsTheKernelDoes) {
  EXPECT_EQ(stat_fd(-1).error().value, EBADF);
  EXPECT_EQ(stat_path(AT_FDCWD, "/no/such/file", 0).error().value, ENOENT);
  EXPECT_EQ(stat_path(AT_FDCWD, "/dev/null/x", 0).error().value, ENOTDIR);
}

TEST(FileStat, IdentifiesContentByFileSizeAndTime) {
  FileStat a{};
  a.inode = 5;
  a.size = 10;
  a.modified = {100, 5, 0};
  FileStat b = a;
  EXPECT_TRUE(a.same_content(b));
  b.accessed.seconds = 7;
  b.links = 3;
  EXPECT_TRUE(a.same_content(b));
  for (const auto change :
       {+[](FileStat& s) { s.size = 11; }, +[](FileStat& s) { s.modified.nanoseconds = 6; },
        +[](FileStat& s) { s.modified.seconds = 99; }, +[](FileStat& s) { s.inode = 6; },
        +[](FileStat& s) { s.device_minor = 1; }, +[](FileStat& s) { s.device_major = 1; }}) {
    b = a;
    change(b);
    EXPECT_FALSE(a.same_content(b));
    EXPECT_FALSE(a.is_unchanged_since(b));
  }
}

TEST(FileStat, DetectsAChangeThatRestoredTheTime) {
  FileStat a{};
  a.modified = {100, 5, 0};
  a.changed = {200, 5, 0};
  FileStat b = a;
  b.accessed.seconds = 300;
  EXPECT_TRUE(b.is_unchanged_since(a)) << "read since";
  for (const auto change :
       {+[](FileStat& s) { s.changed.seconds = 201; },
        +[](FileStat& s) { s.changed.nanoseconds = 6; }, +[](FileStat& s) { s.mode = 0600; },
        +[](FileStat& s) { s.links = 2; }}) {
    b = a;
    change(b);
    EXPECT_TRUE(b.same_content(a));
    EXPECT_FALSE(b.is_unchanged_since(a));
  }
}

TEST(FileStat, ReusedInodeWithAnotherBirthTimeIsAnotherFile) {
  const tests::TempDir dir;
  const base::UniqueFd fd(open(dir.write("f", "x").c_str(), O_RDONLY | O_CLOEXEC));
  const auto now = stat_fd(fd.get());
  ASSERT_TRUE(now);
  if ((now->mask & STATX_BTIME) == 0) GTEST_SKIP() << "no births here";
  FileStat then = *now;
  EXPECT_TRUE(is_same_life(fd.get(), *now, then));
  --then.born.seconds;
  EXPECT_TRUE(now->same_file(then));
  EXPECT_FALSE(is_same_life(fd.get(), *now, then));
  then.mask &= ~STATX_BTIME;
  EXPECT_TRUE(is_same_life(fd.get(), *now, then)) << "a birth that nobody knows tells nothing";
}

TEST(FileStat, FileThatOverlayfsCopiesUpStaysTheSame) {
  const tests::TempDir dir;
  for (const char* const name : {"lower", "upper", "work", "all"})
    ASSERT_EQ(mkdir((dir.path() + "/" + name).c_str(), 0755), 0);
  dir.write("lower/f", "x");
  const std::string all = dir.path() + "/all", options = "lowerdir=" + dir.path() +
                                                         "/lower,upperdir=" + dir.path() +
                                                         "/upper,workdir=" + dir.path() + "/work";
  if (mount("overlay", all.c_str(), "overlay", 0, options.c_str()) != 0)
    GTEST_SKIP() << "cannot mount overlayfs";
  const std::string file = all + "/f";
  const auto then = stat_path(AT_FDCWD, file.c_str(), 0);
  EXPECT_EQ(chmod(file.c_str(), 0600), 0);
  const base::UniqueFd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  const auto now = stat_fd(fd.get());
  EXPECT_TRUE(then && now && now->same_file(*then));
  EXPECT_TRUE(then && now && is_same_life(fd.get(), *now, *then));
  EXPECT_EQ(umount2(all.c_str(), MNT_DETACH), 0);
}

}  // namespace
}  // namespace cube::cache
