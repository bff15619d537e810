// The state that reads of a large file leave in the region if a handler leaves them by a jump or
// forks during them. The handler runs when the bytes are copied to a page that is still
// write-protected.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csetjmp>
#include <csignal>
#include <string>

#include "cache/base/clock.h"
#include "cache/fill/large/large_file.h"
#include "cache/region/lanes.h"
#include "tests/support/sanitizers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

constexpr std::size_t k_page_size = 4096;

sigjmp_buf g_jump;
std::byte* g_page;
bool g_forks, g_is_child;
int g_status;

void on_fault(int) {
  if (!g_forks) siglongjmp(g_jump, 1);
  mprotect(g_page, k_page_size, PROT_READ | PROT_WRITE);
  const pid_t child = fork();
  g_is_child = child == 0;
  if (g_is_child) {
    LargeFile::forget_users();
  } else {
    waitpid(child, &g_status, 0);
  }
}

struct LargeLeftTest : testing::Test {
  tests::TempDir dir;
  tests::TestCache cache{64 * tests::k_mib, [](base::Config& config) {
                           config.max_file = 100'000;
                           config.block = 4096;
                         }};
  const std::string data = std::string(1'000'000, 'a');
  const std::string path = dir.write("f", data);
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  LargeFile* file = nullptr;
  struct sigaction before {};

  void SetUp() override {
    // An earlier test may have found a region full.
    LargeFile::forget_users();
    // A recently written file could be written again without a change of its times, because the
    // clock is coarse.
    const std::uint64_t until = base::monotonic_ns() + 60'000'000'000;
    while (file == nullptr && base::monotonic_ns() < until) file = cache->large().begin(path, fd);
    ASSERT_NE(file, nullptr);
    void* const page = mmap(nullptr, k_page_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(page, MAP_FAILED);
    g_page = static_cast<std::byte*>(page);
    struct sigaction action {};
    action.sa_handler = on_fault;
    sigaction(SIGSEGV, &action, &before);
  }
  void TearDown() override {
    sigaction(SIGSEGV, &before, nullptr);
    munmap(g_page, k_page_size);
    if (file != nullptr) file->end();
    close(fd);
  }
  // Always called at the same depth of the stack.
  [[gnu::noinline]] long read(std::byte* to) const {
    return cache->large().read(*file, FdEpoch(fd), to, k_page_size, 8192);
  }
  std::uint64_t claims() const { return pins_of(cache->region(), cache->region().own_slot()); }
};

TEST_F(LargeLeftTest, NextReadEndsThePinOfAReadLeftByAJump) {
  if (tests::k_asan)
    GTEST_SKIP()
        << "AddressSanitizer has handlers of its own, and larger frames that keep old words";
  g_forks = false;
  std::byte bytes[k_page_size];
  ASSERT_EQ(read(bytes), static_cast<long>(k_page_size));
  for (int i = 0; i < 3; ++i) {
    if (sigsetjmp(g_jump, 1) == 0) read(g_page);
    EXPECT_EQ(claims(), 1U);
  }
  EXPECT_EQ(read(bytes), static_cast<long>(k_page_size));
  EXPECT_EQ(claims(), 0U);
}

TEST_F(LargeLeftTest, ChildThatReturnsIntoAReadLeavesTheParentsPin) {
  if (tests::k_tsan) GTEST_SKIP() << "ThreadSanitizer takes a fork in a handler for a fault";
  g_forks = true;
  std::byte bytes[k_page_size];
  ASSERT_EQ(read(bytes), static_cast<long>(k_page_size));
  EXPECT_EQ(read(g_page), static_cast<long>(k_page_size));
  if (g_is_child) _exit(claims() == 1 ? 0 : 1);
  EXPECT_EQ(g_status, 0);
  EXPECT_EQ(claims(), 0U);
}

TEST_F(LargeLeftTest, FileOfTooManyChunksIsLeftToTheKernel) {
  const int sparse = memfd_create("sparse", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(sparse, off_t{1} << 47), 0);
  LargeFile* numbered = nullptr;
  const std::uint64_t until = base::monotonic_ns() + 60'000'000'000;
  while (numbered == nullptr && base::monotonic_ns() < until)
    numbered = cache->large().begin("/sparse", sparse);
  ASSERT_NE(numbered, nullptr);
  numbered->end();
  ASSERT_EQ(ftruncate(sparse, off_t{1} << 54), 0);
  for (const std::uint64_t later = base::monotonic_ns() + 200'000'000;
       base::monotonic_ns() < later;)
    ASSERT_EQ(cache->large().begin("/sparse", sparse), nullptr);
  close(sparse);
}

}  // namespace
}  // namespace cube::cache
