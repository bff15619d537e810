// Compares memory limits with the kernel's figures for this machine. Control groups made by the
// test need root and a writable hierarchy.
#include "cache/base/memory/memory_limits.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "tests/support/child.h"

namespace cube::base {
namespace {

TEST(MemoryLimits, AvailableIsNoMoreThanTheMachineHas) {
  struct sysinfo info {};
  ASSERT_EQ(sysinfo(&info), 0);
  const std::uint64_t available = available_memory();
  EXPECT_GT(available, 1U << 20);
  EXPECT_LE(available, std::uint64_t{info.totalram} * info.mem_unit);
}

// Makes a group of the v1 memory controller, or a v2 group below the group of this process. Returns
// an empty path if this is impossible.
std::string make_group(std::string& limit_file) {
  std::ifstream lines("/proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool v1 = controllers.find("memory") != std::string::npos;
    if (!v1 && !controllers.empty()) continue;
    const std::string group = line.substr(second + 1);
    // A test in another pid namespace can have the same process id.
    std::string dir =
        std::string("/sys/fs/cgroup") + (v1 ? "/memory" : "") + group + "/cubeshim-test-XXXXXX";
    if (mkdtemp(dir.data()) == nullptr) continue;
    limit_file = dir + (v1 ? "/memory.limit_in_bytes" : "/memory.max");
    if (access(limit_file.c_str(), W_OK) == 0) return dir;
    rmdir(dir.c_str());
  }
  return {};
}

TEST(MemoryLimits, RespectsTheLimitOfTheControlGroup) {
  std::string limit_file;
  const std::string dir = make_group(limit_file);
  if (dir.empty()) GTEST_SKIP() << "no control group can be made here";
  constexpr std::uint64_t k_limit = 256 << 20;
  std::ofstream(limit_file) << k_limit << std::flush;
  // The limit also applies to the groups below.
  const std::string below = dir + "/below";
  ASSERT_EQ(mkdir(below.c_str(), 0755), 0);
  for (const std::string& group : {below, dir}) {
    EXPECT_EQ(tests::run_in_child([&] {
                std::ofstream(group + "/cgroup.procs") << getpid() << std::flush;
                const std::uint64_t available = available_memory();
                CHILD_CHECK(available <= k_limit);
                CHILD_CHECK(available >= k_limit / 2);
                return 0;
              }),
              0);
    rmdir(group.c_str());
  }
}

// A region can give back only memory that it uses.
TEST(MemoryLimits, ControlGroupWithoutTmpfsFilesNeedsNothingBack) {
  std::string limit_file;
  const std::string dir = make_group(limit_file);
  if (dir.empty()) GTEST_SKIP() << "no control group can be made here";
  std::ofstream(limit_file) << k_memory_left_alone / 2 << std::flush;
  EXPECT_EQ(tests::run_in_child([&] {
              std::ofstream(dir + "/cgroup.procs") << getpid() << std::flush;
              const MemoryLeft memory = memory_left();
              CHILD_CHECK(memory.left <= k_memory_left_alone / 2);
              CHILD_CHECK(memory.missing < k_memory_left_alone / 4);
              return 0;
            }),
            0);
  rmdir(dir.c_str());
}

// The kernel reclaims the group's page cache on demand, so it does not count as used.
TEST(MemoryLimits, PageCacheOfTheControlGroupDoesNotCountAsUsed) {
  std::string limit_file;
  const std::string dir = make_group(limit_file);
  if (dir.empty()) GTEST_SKIP() << "no control group can be made here";
  constexpr std::uint64_t k_limit = 256 << 20;
  std::ofstream(limit_file) << k_limit << std::flush;
  const std::string file = "/var/tmp/cubeshim-test-" + std::to_string(getpid());
  const int status = tests::run_in_child([&] {
    std::ofstream(dir + "/cgroup.procs") << getpid() << std::flush;
    const std::string block(1 << 20, 'x');
    std::ofstream out(file);
    for (int i = 0; i < 200; ++i) out << block;
    out << std::flush;
    sync();
    CHILD_CHECK(available_memory() >= k_limit / 2);
    return 0;
  });
  unlink(file.c_str());
  rmdir(dir.c_str());
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace cube::base
