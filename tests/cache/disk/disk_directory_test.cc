// The paths in the disk tier's directory, and how a directory is created.
#include "cache/tier/disk/disk_directory.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>

#include "tests/support/sanitizers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tracee.h"

namespace cube::cache {
namespace {

struct DiskDirectoryTest : testing::Test {
  tests::TempDir dir;
  std::string why;
  base::Result<DiskDirectory> directory = DiskDirectory::open(dir.path(), "names", false, why);
  void SetUp() override { ASSERT_TRUE(directory) << why; }
};

// Measures how much stack a thread uses to run `body`.
std::size_t stack_used_by(void* (*body)(void*), void* of) {
  constexpr std::byte k_untouched{0xa5};
  alignas(4096) static std::byte stack[256 << 10];
  std::fill(std::begin(stack), std::end(stack), k_untouched);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, stack, sizeof stack);
  pthread_t thread{};
  EXPECT_EQ(pthread_create(&thread, &attributes, body, of), 0);
  EXPECT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
  const auto* const touched = std::find_if(std::begin(stack), std::end(stack),
                                           [](std::byte b) { return b != k_untouched; });
  return static_cast<std::size_t>(std::end(stack) - touched);
}

TEST_F(DiskDirectoryTest, NamesOfSegmentFilesHaveEightDigitsAtLeast) {
  const std::string below = directory->path() + "/";
  EXPECT_EQ(directory->path_of("index").text, below + "index");
  EXPECT_EQ(directory->path_of_segment(7).text, below + "segment-00000007");
  EXPECT_EQ(directory->path_of_segment(12'345'678).text, below + "segment-12345678");
  EXPECT_EQ(directory->path_of_segment(UINT32_MAX).text, below + "segment-4294967295");
}

// Two containers that share the directory can have the same pids.
TEST_F(DiskDirectoryTest, FileThatAProcessOfTheSamePidIsWritingIsLeftAlone) {
  const std::string other = directory->path() + "/version." + std::to_string(getpid());
  ASSERT_TRUE(tests::TempDir::write_file(other, "half"));
  ASSERT_EQ(unlink((directory->path() + "/version").c_str()), 0);
  EXPECT_TRUE(DiskDirectory::open(dir.path(), "names", false, why)) << why;
  EXPECT_EQ(std::filesystem::file_size(other), 4U);
}

TEST(DiskDirectory, VersionIsOnTheDiskBeforeItHasItsName) {
  const tests::TempDir dir;
  tests::Tracee child([&] {
    std::string why;
    return DiskDirectory::open(dir.path(), "names", false, why) ? 0 : 1;
  });
  bool is_synced = false, is_linked = false;
  while (!is_linked && child.to_system_call()) {
    is_synced = is_synced || child.at_entry_of(SYS_fsync);
    is_linked = child.at_entry_of(SYS_linkat);
  }
  EXPECT_TRUE(is_linked && is_synced);
  child.to_stop();
  EXPECT_EQ(child.exit_status(), 0);
}

// A signal handler can read from the disk tier, and on some processors its stack has only 8 KB.
TEST_F(DiskDirectoryTest, NameOfASegmentFileTakesLittleMoreStackThanItsBytes) {
  if (tests::k_asan || tests::k_tsan) GTEST_SKIP() << "a sanitizer's frames are larger";
  const std::size_t least = stack_used_by([](void*) -> void* { return nullptr; }, nullptr);
  const auto make_name = [](void* of) -> void* {
    const auto path = static_cast<DiskDirectory*>(of)->path_of_segment(7);
    return path.text[0] == '/' ? of : nullptr;
  };
  EXPECT_LE(stack_used_by(make_name, &*directory), least + sizeof(DiskDirectory::Path) + 768);
}

}  // namespace
}  // namespace cube::cache
