// The threads that read large files ahead.
#include "prefetch/work/block_reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/kcmp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>

#include "cache/base/clock.h"
#include "cache/base/unique_fd.h"
#include "tests/support/sanitizers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"

namespace cube::prefetch {
namespace {

// If a thread still had these fds, it would hold a lock of the program even after the program
// closed its own fd.
TEST(BlockReader, ThreadsNeverHoldFilesOfTheProgram) {
  if (tests::k_tsan)
    GTEST_SKIP() << "ThreadSanitizer has a thread of its own, with the program's files";
  for (int i = 0; i < 20; ++i) {
    tests::TestCache cache{16 * tests::k_mib};
    const base::UniqueFd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
    BlockReader* const reader =
        BlockReader::start(*cache.cache, [](const cache::LargeFile&) { return -1; });
    ASSERT_NE(reader, nullptr);
    int others = 0, with_it = 0;
    DIR* const tasks = opendir("/proc/self/task");
    while (const dirent* const entry = readdir(tasks)) {
      const std::string task = entry->d_name;
      // A keeper shares the program's fd table (background_thread.cc), so a close by the program
      // also applies to the keeper.
      if (task[0] == '.' || syscall(SYS_kcmp, getpid(), std::stoi(task), KCMP_FILES, 0, 0) == 0)
        continue;
      ++others;
      with_it += access(("/proc/self/task/" + task + "/fd/" + std::to_string(file.get())).c_str(),
                        F_OK) == 0
                     ? 1
                     : 0;
    }
    closedir(tasks);
    reader->stop(5000);
    tests::never_freed(reader);
    EXPECT_GE(others, 4);
    EXPECT_EQ(with_it, 0);
  }
}

// A program may ask for any bytes (POSIX_FADV_WILLNEED), which need not begin and end at a block.
TEST(BlockReader, FetchesExactlyThePagesOfARange) {
  constexpr std::uint64_t k_block = 64 << 10, k_page = 4096;
  tests::TestCache cache{16 * tests::k_mib, [](base::Config& config) {
                           config.max_file = k_block;
                           config.block = k_block;
                         }};
  const tests::TempDir dir;
  const std::string path = dir.write("f", std::string(4 * k_block, 'x'));
  const base::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  static int number = -1;
  number = fd.get();
  cache::LargeFile* const file = cache->large().begin(path, number);
  ASSERT_NE(file, nullptr);
  BlockReader* const reader =
      BlockReader::start(*cache.cache, [](const cache::LargeFile&) { return number; });
  ASSERT_NE(reader, nullptr);
  const cache::LargeFile::Range wanted{k_block - k_page, 2 * k_block + k_page}, all{0, 4 * k_block};
  ASSERT_TRUE(reader->submit(*file, number, file->fds_left(), wanted));
  const std::uint64_t until = base::monotonic_ns() + 60'000'000'000,
                      bytes = wanted.end - wanted.begin;
  while (cache->large().present_bytes(*file, wanted) < bytes && base::monotonic_ns() < until)
    sched_yield();
  reader->stop(5000);
  tests::never_freed(reader);
  EXPECT_EQ(cache->large().present_bytes(*file, wanted), bytes);
  EXPECT_EQ(cache->large().present_bytes(*file, all), bytes);
  file->end();
}

}  // namespace
}  // namespace cube::prefetch
