// Processes that are alive, and processes that only seem to be alive.
#include "cache/base/process/process_id.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
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
  // The start time as the kernel documents it. This command name has no ')'.
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
    std::sscanf(after + 2,
                "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                &start);
  id.start_time = start;
  return id;
}

TEST(ProcessId, ThisProcessIsAlive) {
  const ProcessId self = current_process();
  EXPECT_EQ(self.pid, static_cast<std::uint32_t>(getpid()));
  EXPECT_NE(self.start_time, 0U);
  EXPECT_NE(self.pid_namespace, 0U);
  EXPECT_EQ(liveness_of(self), Liveness::alive);
}

TEST(ProcessId, ChildIsAliveThenDead) {
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

// Ranks of a job are twins. A DataLoader and its workers, or a shell and a program, are not.
TEST(ProcessId, TwinsRunTheSameCommandAndAreNotParentAndChild) {
  Child other([] { return tests::wait_for_death(); });
  const std::uint64_t command = hash_of_own_command();
  ASSERT_NE(command, 0U);
  EXPECT_FALSE(is_twin(id_of(other), command, command));
  const ProcessId twin = id_of(other), parent = current_process();
  EXPECT_EQ(tests::run_in_child([&] {
              CHILD_CHECK(hash_of_own_command() == command);
              CHILD_CHECK(is_twin(twin, command, command));
              CHILD_CHECK(!is_twin(twin, command + 1, command));
              CHILD_CHECK(!is_twin(twin, 0, 0));
              CHILD_CHECK(!is_twin(parent, command, command));
              return 0;
            }),
            0);
}

// A process that cannot be examined must not be taken for dead.
TEST(ProcessId, IsAliveWhenProcCannotBeRead) {
  Child child([] { return tests::wait_for_death(); });
  const ProcessId id = id_of(child);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  setrlimit(RLIMIT_NOFILE, &none);
  const Liveness living = liveness_of(id);
  child.kill();
  const Liveness dead = liveness_of(id);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(living, Liveness::alive);
  EXPECT_EQ(dead, Liveness::dead);
}

// In that namespace, /proc shows another process under the same pid.
TEST(ProcessId, LivenessIsRightDespiteProcOfAnotherPidNamespace) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const int status = tests::run_in_child([] {
    if (unshare(CLONE_NEWPID) != 0) return 77;
    return tests::run_in_child([] {
      Child sibling([] { return tests::wait_for_death(); });
      const ProcessId own = current_process();
      CHILD_CHECK(own.pid == 1 && own.start_time != 0);
      CHILD_CHECK(liveness_of(own) == Liveness::alive);
      ProcessId other = own;
      other.pid = static_cast<std::uint32_t>(sibling.pid());
      other.start_time += 1;
      CHILD_CHECK(liveness_of(other) == Liveness::alive);
      sibling.kill();
      CHILD_CHECK(liveness_of(other) == Liveness::dead);
      return 0;
    });
  });
  if (status == 77) GTEST_SKIP() << "no pid namespaces here";
  EXPECT_EQ(status, 0);
}

// Without /proc, two processes with pid 1 must not be mistaken for the same process.
TEST(ProcessId, EqualPidsWithoutProcAreTwoProcesses) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  for (int i = 0; i < 2; ++i) {
    const int status = tests::run_in_child([&] {
      if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0 ||
          mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
        return 77;
      CHILD_CHECK(mount("none", "/proc", "tmpfs", 0, nullptr) == 0);
      (void)current_process();
      return tests::run_in_child([&] {
        const ProcessId self = current_process();
        CHILD_CHECK(self == current_process() && liveness_of(self) == Liveness::alive);
        return write(ends[1], &self, sizeof self) == static_cast<ssize_t>(sizeof self) ? 0 : 1;
      });
    });
    if (status == 77) GTEST_SKIP() << "no pid namespaces here";
    ASSERT_EQ(status, 0);
  }
  ProcessId first, second;
  ASSERT_EQ(read(ends[0], &first, sizeof first), static_cast<ssize_t>(sizeof first));
  ASSERT_EQ(read(ends[0], &second, sizeof second), static_cast<ssize_t>(sizeof second));
  EXPECT_EQ(first.pid, second.pid);
  EXPECT_FALSE(first == second);
  for (const int fd : ends) close(fd);
}

// The liveness of a process that has this pid and started so many ticks later.
Liveness liveness_if_started_later(int ticks) {
  ProcessId other = current_process();
  other.start_time += static_cast<std::uint64_t>(ticks);
  return liveness_of(other);
}

TEST(ProcessId, AReusedPidIsAnotherProcess) {
  for (const int ticks : {-2, 2}) EXPECT_EQ(liveness_if_started_later(ticks), Liveness::dead);
}

TEST(ProcessId, StartTimeRoundedToAnotherTickIsTheSameProcess) {
  for (const int ticks : {-1, 1}) EXPECT_EQ(liveness_if_started_later(ticks), Liveness::alive);
}

TEST(ProcessId, IsUnknownInAnotherPidNamespace) {
  ProcessId other = current_process();
  other.pid_namespace += 1;
  EXPECT_EQ(liveness_of(other), Liveness::unknown);
}

TEST(ProcessId, CommandNameWithParenthesesIsParsed) {
  const int status = tests::run_in_child([] {
    const ProcessId before = current_process();
    prctl(PR_SET_NAME, "a) Z 1 (b)");
    CHILD_CHECK(current_process() == before);
    CHILD_CHECK(liveness_of(before) == Liveness::alive);
    return 0;
  });
  EXPECT_EQ(status, 0);
}

// /proc/PID/stat says Z for a process whose first thread has ended while others run.
TEST(ProcessId, AProcessWhoseFirstThreadHasEndedIsAlive) {
  if (tests::k_tsan) GTEST_SKIP() << "pthread_exit of the first thread confuses TSan";
  Child child([]() -> int {
    pthread_t thread{};
    pthread_create(
        &thread, nullptr,
        [](void*) -> void* { return tests::wait_for_death() != 0 ? nullptr : nullptr; }, nullptr);
    syscall(SYS_exit, 0);  // ends only this thread
    return 1;
  });
  const ProcessId id = id_of(child);
  tests::wait_for_zombie(child.pid());
  EXPECT_EQ(liveness_of(id), Liveness::alive);
}

TEST(ProcessId, SurvivesFormatAndParse) {
  for (const ProcessId& id :
       {current_process(), ProcessId{1, 0, 0}, ProcessId{INT32_MAX, UINT64_MAX, UINT64_MAX}}) {
    char text[64];
    const std::size_t n = format_process_id(id, text, sizeof text);
    EXPECT_EQ(n, std::string_view(text).size());
    ProcessId back{1, 2, 3};
    ASSERT_TRUE(parse_process_id(text, back)) << text;
    EXPECT_EQ(back, id);
  }
}

TEST(ProcessId, WrongTextIsRefused) {
  for (const char* text : {"", "1", "1.2", "1.2.", "1.2.3.", "1.2.3x", " 1.2.3", "-1.2.3", "1..3",
                           ".1.2.3", "4294967296.2.3", "1.18446744073709551616.3", "1,2,3", "0.2.3",
                           "2147483648.2.3", "4294967295.2.3"}) {
    ProcessId id;
    EXPECT_FALSE(parse_process_id(text, id)) << text;
  }
}

TEST(ProcessId, FormatStaysWithinItsBuffer) {
  char text[8];
  std::memset(text, '#', sizeof text);
  format_process_id({123456, 789, 12}, text, 5);
  EXPECT_EQ(std::string_view(text, 5), std::string_view("1234\0", 5));
  EXPECT_EQ(text[5], '#');
}

}  // namespace
}  // namespace cube::base
