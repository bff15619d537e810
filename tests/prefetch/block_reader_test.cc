// The threads that read large files ahead.
#include "prefetch/block_reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "cache/base/unique_fd.h"
#include "tests/support/sanitizers.h"
#include "tests/support/test_region.h"

namespace cube::prefetch {
namespace {

// A thread that still had them would hold a lock of the program's after its close.
TEST(BlockReader, ItsThreadsHaveNoneOfTheProgramsFilesFromTheStartOn) {
  if (tests::k_tsan) GTEST_SKIP() << "ThreadSanitizer has a thread of its own, with the program's files";
  for (int i = 0; i < 20; ++i) {
    tests::TestCache cache{16 * tests::k_mib};
    const base::UniqueFd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
    BlockReader* const reader = BlockReader::start(*cache.cache, [](const cache::LargeFile&) { return -1; });
    ASSERT_NE(reader, nullptr);
    int others = 0, with_it = 0;
    DIR* const tasks = opendir("/proc/self/task");
    while (const dirent* const entry = readdir(tasks)) {
      const std::string task = entry->d_name;
      if (task[0] == '.' || task == std::to_string(getpid())) continue;
      ++others;
      with_it += access(("/proc/self/task/" + task + "/fd/" + std::to_string(file.get())).c_str(), F_OK) == 0 ? 1 : 0;
    }
    closedir(tasks);
    reader->stop(5000);
    tests::never_freed(reader);
    EXPECT_GE(others, 4);
    EXPECT_EQ(with_it, 0);
  }
}

}  // namespace
}  // namespace cube::prefetch
