// Requests to the origin, and files whose bytes do not match their stat.
#include "cache/origin/mount_file.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/temp_dir.h"

namespace cube::cache {
namespace {

using base::Counter;

struct Origin : testing::Test {
  tests::TempDir dir;
  std::unique_ptr<base::Stats> stats = std::make_unique<base::Stats>();

  base::Result<MountFile> open(const std::string& path, int flags = O_RDONLY) {
    return MountFile::open(path.c_str(), flags, stats.get());
  }
  std::uint64_t count(Counter counter) const {
    return stats->counters[static_cast<std::size_t>(counter)].load();
  }
  // Reads the bytes; the test fails if the guard byte after them was overwritten.
  static bool read(const MountFile& file, std::string& to, base::Stats* stats) {
    to.assign(file.stat().size + 1, '#');
    const bool whole = file.read_whole(reinterpret_cast<std::byte*>(to.data()), stats).has_value();
    EXPECT_EQ(to.back(), '#') << "wrote beyond the size";
    to.pop_back();
    return whole;
  }
};

TEST_F(Origin, AWholeFileCostsOneOpenOneStatOneRead) {
  const std::string content(100'000, 'q');
  const auto file = open(dir.write("f", content));
  ASSERT_TRUE(file);
  std::string got;
  EXPECT_TRUE(read(*file, got, stats.get()));
  EXPECT_EQ(got, content);
  EXPECT_EQ(count(Counter::origin_opens), 1U);
  EXPECT_EQ(count(Counter::origin_stats), 1U);
  EXPECT_EQ(count(Counter::origin_reads), 1U);
  EXPECT_EQ(count(Counter::origin_bytes), 100'000U);
  EXPECT_TRUE(file->is_unchanged(stats.get()));
  EXPECT_EQ(count(Counter::origin_stats), 2U);
}

TEST_F(Origin, AnEmptyFileIsWhole) {
  const auto file = open(dir.write("f", ""));
  std::string got;
  EXPECT_TRUE(read(*file, got, stats.get()));
}

TEST_F(Origin, LeavesTheOffsetOfTheFdAtZero) {
  auto file = open(dir.write("f", "abc"));
  std::string got;
  ASSERT_TRUE(read(*file, got, stats.get()));
  const base::UniqueFd fd(file->release());
  EXPECT_EQ(lseek(fd.get(), 0, SEEK_CUR), 0);
}

TEST_F(Origin, AFileThatHasGrownIsRefused) {
  const std::string path = dir.write("f", "abc");
  const auto file = open(path);
  ASSERT_TRUE(tests::TempDir::write_file(path, "abcd"));
  std::string got;
  EXPECT_FALSE(read(*file, got, stats.get()));
  EXPECT_FALSE(file->is_unchanged(stats.get()));
}

TEST_F(Origin, AFileThatHasShrunkIsRefused) {
  const std::string path = dir.write("f", std::string(100'000, 'x'));
  const auto file = open(path);
  for (const off_t size : {99'999, 4096, 0}) {
    ASSERT_EQ(truncate(path.c_str(), size), 0);
    std::string got;
    EXPECT_FALSE(read(*file, got, stats.get())) << size;
  }
}

TEST_F(Origin, FileThatReportsAWrongSizeIsRefused) {
  const auto file = open("/proc/self/status");  // reports 0 bytes
  ASSERT_TRUE(file);
  std::string got;
  EXPECT_FALSE(read(*file, got, stats.get()));
}

TEST_F(Origin, RewriteOfTheSameSizeIsDetectedByItsTime) {
  const std::string path = dir.write("f", "abc");
  const timespec old[2] = {{1000, 0}, {1000, 0}};
  utimensat(AT_FDCWD, path.c_str(), old, 0);
  const auto file = open(path);
  ASSERT_TRUE(tests::TempDir::write_file(path, "abd"));
  EXPECT_FALSE(file->is_unchanged(stats.get()));
}

TEST_F(Origin, RewriteThatRestoredTheTimeIsDetectedByItsCtime) {
  const std::string path = dir.write("f", "abc");
  const timespec old[2] = {{1000, 0}, {1000, 0}};
  utimensat(AT_FDCWD, path.c_str(), old, 0);
  const auto file = open(path);
  // The ctime advances only with the kernel's tick.
  while (stat_path(AT_FDCWD, path.c_str(), 0)->changed == file->stat().changed) {
    ASSERT_TRUE(tests::TempDir::write_file(path, "abd"));
    utimensat(AT_FDCWD, path.c_str(), old, 0);
  }
  EXPECT_FALSE(file->is_unchanged(stats.get()));
}

TEST_F(Origin, ConstantlyTruncatedFileIsWholeOrRefused) {
  const std::string whole(300'000, 'x');
  const std::string path = dir.write("f", whole);
  std::atomic<bool> stop{false};
  std::thread changer([&] {
    const base::UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    for (off_t i = 0; !stop; ++i) {
      EXPECT_EQ(ftruncate(fd.get(), i % 2 == 0 ? 100'000 : 0), 0);
      EXPECT_EQ(pwrite(fd.get(), whole.data(), whole.size(), 0),
                static_cast<ssize_t>(whole.size()));
    }
  });
  int right = 0, refused = 0;
  for (int i = 0; i < 500; ++i) {
    const auto file = open(path);
    std::string got;
    if (!read(*file, got, stats.get()) || !file->is_unchanged(stats.get())) {
      ++refused;
      continue;
    }
    ++right;
    EXPECT_EQ(got.find_first_not_of('x'), std::string::npos);
  }
  stop = true;
  changer.join();
  std::printf("%d reads were whole, %d were refused\n", right, refused);
}

TEST_F(Origin, ReturnsTheKernelsErrors) {
  EXPECT_EQ(open(dir / "none").error().value, ENOENT);
  EXPECT_EQ(open("/dev/null/x").error().value, ENOTDIR);
  ASSERT_EQ(symlink("loop", (dir / "loop").c_str()), 0);
  EXPECT_EQ(open(dir / "loop").error().value, ELOOP);
}

TEST_F(Origin, PhysicalIsAPathWithoutSymbolicLinks) {
  const std::string path = dir.write("f", "abc");
  ASSERT_EQ(symlink(".", (dir / "link").c_str()), 0);
  ASSERT_EQ(symlink("f", (dir / "g").c_str()), 0);
  EXPECT_TRUE(open(path)->is_physical(path));
  EXPECT_FALSE(open(dir / "link/f")->is_physical(dir / "link/f"));
  EXPECT_FALSE(open(dir / "g")->is_physical(dir / "g"));
}

}  // namespace
}  // namespace cube::cache
