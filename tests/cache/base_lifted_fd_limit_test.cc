// The limit belongs to the process, so each test changes it in a child.
#include "cache/base/process/lifted_fd_limit.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <optional>
#include <thread>

#include "tests/support/sanitizers.h"

namespace cube::base {
namespace {

constexpr rlim_t k_of_program = 64;

rlim_t soft_limit() {
  struct ::rlimit limit {};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}
void set_soft_limit(rlim_t value) {
  struct ::rlimit limit {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = value;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Runs body() in a child whose limit is k_of_program, and returns its result.
template <typename Body>
int status_of(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    set_soft_limit(k_of_program);
    _exit(body());
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(LiftedFdLimit, LastOfTwoThreadsRestoresIt) {
  EXPECT_EQ(status_of([] {
              std::optional<LiftedFdLimit> one, other;
              one.emplace();
              other.emplace();
              one.reset();
              if (soft_limit() <= k_of_program) return 1;
              other.reset();
              return soft_limit() == k_of_program ? 0 : 2;
            }),
            0);
}

TEST(LiftedFdLimit, LimitSetByTheProgramMeanwhileStays) {
  EXPECT_EQ(status_of([] {
              {
                const LiftedFdLimit lifted;
                set_soft_limit(50);
              }
              if (soft_limit() != 50) return 1;
              { const LiftedFdLimit lifted; }
              return soft_limit() == 50 ? 0 : 2;
            }),
            0);
}

TEST(LiftedFdLimit, LiftedLimitThatTheProgramSetsItselfStays) {
  EXPECT_EQ(status_of([] {
              rlim_t lifted = 0;
              {
                const LiftedFdLimit limit;
                lifted = soft_limit();
                LiftedFdLimit::set_by_program([&] {
                  set_soft_limit(lifted);
                  return 0;
                });
              }
              return lifted > k_of_program && soft_limit() == lifted ? 0 : 1;
            }),
            0);
}

// A child that shares the memory lifts the limit while the parent does, and restores it later.
TEST(LiftedFdLimit, ChildOfVforkLeavesTheLimitOfItsParent) {
  if (tests::k_tsan) GTEST_SKIP() << "such a child confuses TSan";
  EXPECT_EQ(status_of([] {
              LiftedFdLimit::become_process();
              static std::atomic<int> step{0};
              alignas(16) static char stack[1 << 16];
              std::optional<LiftedFdLimit> own(std::in_place);
              const auto lift = [](void*) {
                const LiftedFdLimit lifted;
                step = 1;
                while (step != 2) sched_yield();
                return 0;
              };
              const pid_t child =
                  clone(lift, stack + sizeof stack, CLONE_VM | SIGCHLD, nullptr, nullptr);
              if (child < 0) return 1;
              while (step != 1) sched_yield();
              own.reset();
              step = 2;
              int status = -1;
              waitpid(child, &status, 0);
              return status == 0 && soft_limit() == k_of_program ? 0 : 2;
            }),
            0);
}

TEST(LiftedFdLimit, IsLiftedForAThreadWhileAnotherRestoresIt) {
  EXPECT_EQ(status_of([] {
              std::atomic<int> refused{0};
              const auto lift_often = [&refused] {
                for (int i = 0; i < 5000; ++i) {
                  const BlockSignals block;
                  const LiftedFdLimit lifted;
                  if (soft_limit() <= k_of_program) ++refused;
                }
              };
              { const std::jthread one(lift_often), other(lift_often), third(lift_often); }
              if (refused != 0) return 1;
              return soft_limit() == k_of_program ? 0 : 2;
            }),
            0);
}

TEST(LiftedFdLimit, ForkedChildGetsTheProgramsLimit) {
  EXPECT_EQ(status_of([] {
              const LiftedFdLimit lifted;
              const pid_t child = fork();
              if (child == 0) {
                LiftedFdLimit::become_process();
                _exit(soft_limit() == k_of_program ? 0 : 1);
              }
              int status = -1;
              waitpid(child, &status, 0);
              return status == 0 ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace cube::base
