// Who is alive, and who only looks like it.
#include "cache/base/process_id.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/support/child.h"
#include "tests/support/sanitizers.h"

namespace cube::base {
namespace {

using tests::Child;
using tests::Gate;

ProcessId id_of(const Child& child) {
  ProcessId id = current_process();
  id.pid = static_cast<std::uint32_t>(child.pid());
  // The start time by the way the kernel documents it, the command name here without a ')'.
  char path[64], text[1024];
  std::snprintf(path, sizeof path, "/proc/%d/stat", child.pid());
  FILE* const file = std::fopen(path, "r");
  if (file == nullptr) return id;
  const std::size_t n = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  text[n] = '\0';
  unsigned long long start = 0;
  const char* after = std::strrchr(text, ')');
  if (after != nullptr)
    std::sscanf(after + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &start);
  id.start_time = start;
  return id;
}

TEST(ProcessId, OfThisProcessIsAlive) {
  const ProcessId self = current_process();
  EXPECT_EQ(self.pid, static_cast<std::uint32_t>(getpid()));
  EXPECT_NE(self.start_time, 0U);
  EXPECT_NE(self.pid_namespace, 0U);
  EXPECT_EQ(liveness_of(self), Liveness::alive);
}

TEST(ProcessId, OfAChildIsAliveThenDead) {
  Child child([] { return tests::wait_for_death(); });
  const ProcessId id = id_of(child);
  EXPECT_EQ(liveness_of(id), Liveness::alive);
  child.kill_without_reaping();
  EXPECT_EQ(liveness_of(id), Liveness::dead) << "a zombie";
  child.wait();
  EXPECT_EQ(liveness_of(id), Liveness::dead);
}

TEST(ProcessId, AStoppedProcessIsAlive) {
  Child child([] { return tests::wait_for_death(); });
  child.stop();
  EXPECT_EQ(liveness_of(id_of(child)), Liveness::alive);
}

TEST(ProcessId, AReusedPidIsAnotherProcess) {
  ProcessId other = current_process();
  other.start_time -= 1;
  EXPECT_EQ(liveness_of(other), Liveness::dead);
}

TEST(ProcessId, OfAnotherPidNamespaceIsUnknown) {
  ProcessId other = current_process();
  other.pid_namespace += 1;
  EXPECT_EQ(liveness_of(other), Liveness::unknown);
}

TEST(ProcessId, ACommandNameWithParenthesesIsNoTrap) {
  const int status = tests::run_in_child([] {
    const ProcessId before = current_process();
    prctl(PR_SET_NAME, "a) Z 1 (b)");
    CHILD_CHECK(current_process() == before);
    CHILD_CHECK(liveness_of(before) == Liveness::alive);
    return 0;
  });
  EXPECT_EQ(status, 0);
}

// Once a bug: /proc/PID/stat says Z of a process whose first thread has ended while others run.
TEST(ProcessId, AProcessWhoseFirstThreadHasEndedIsAlive) {
  if (tests::k_tsan) GTEST_SKIP() << "pthread_exit of the first thread confuses TSan";
  Child child([]() -> int {
    pthread_t thread{};
    pthread_create(
        &thread, nullptr, [](void*) -> void* { return tests::wait_for_death() != 0 ? nullptr : nullptr; }, nullptr);
    syscall(SYS_exit, 0);  // of this thread alone
    return 1;
  });
  const ProcessId id = id_of(child);
  tests::wait_for_zombie(child.pid());
  EXPECT_EQ(liveness_of(id), Liveness::alive);
}

TEST(ProcessId, SurvivesFormatAndParse) {
  for (const ProcessId& id : {current_process(), ProcessId{1, 0, 0}, ProcessId{INT32_MAX, UINT64_MAX, UINT64_MAX}}) {
    char text[64];
    const std::size_t n = format_process_id(id, text, sizeof text);
    EXPECT_EQ(n, std::string_view(text).size());
    ProcessId back{1, 2, 3};
    ASSERT_TRUE(parse_process_id(text, back)) << text;
    EXPECT_EQ(back, id);
  }
}

TEST(ProcessId, WrongTextIsRefused) {
  for (const char* text : {"", "1", "1.2", "1.2.", "1.2.3.", "1.2.3x", " 1.2.3", "-1.2.3", "1..3", ".1.2.3", "4294967296.2.3",
                           "1.18446744073709551616.3", "1,2,3", "0.2.3", "2147483648.2.3", "4294967295.2.3"}) {
    ProcessId id;
    EXPECT_FALSE(parse_process_id(text, id)) << text;
  }
}

TEST(ProcessId, FormatKeepsToItsRoom) {
  char text[8];
  std::memset(text, '#', sizeof text);
  format_process_id({123456, 789, 12}, text, 5);
  EXPECT_EQ(std::string_view(text, 5), std::string_view("1234\0", 5));
  EXPECT_EQ(text[5], '#');
}

}  // namespace
}  // namespace cube::base
