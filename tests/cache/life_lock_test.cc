// A process counts as alive as long as its memory exists. Its threads, its fds, /proc and its pid
// do not matter.
#include "cache/region/life/life_lock.h"

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <thread>
#include <vector>

#include "cache/region/life/process_reaper.h"
#include "cache/region/life/process_slots.h"
#include "cache/region/life/robust_lock.h"
#include "tests/support/attached_child.h"
#include "tests/support/child.h"
#include "tests/support/reap.h"
#include "tests/support/sanitizers.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

using tests::Child;
using tests::Gate;
using tests::reap;
using tests::TestRegion;

// While an object of this class exists, no fd is free.
class NoFdLeft {
 public:
  NoFdLeft() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
  }
  NoFdLeft(const NoFdLeft&) = delete;
  NoFdLeft& operator=(const NoFdLeft&) = delete;
  ~NoFdLeft() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

// Returns a child that was attached by one of its threads, which has ended.
Child child_whose_thread_has_ended(const RegionOptions& options) {
  Gate ready;
  Child child([&] {
    bool done = false;
    std::thread([&] { done = tests::attach(options) != nullptr; }).join();
    CHILD_CHECK(done);
    ready.give();
    return tests::wait_for_death();
  });
  EXPECT_TRUE(ready.take());
  return child;
}

// The slot must not depend on the thread that attached. Otherwise, a process that cannot read /proc
// would mistake the end of this thread for the death of its process.
TEST(LifeLock, SurvivesTheEndOfItsThreadAndAPeerWithoutFds) {
  const TestRegion region;
  Child child = child_whose_thread_has_ended(region.options);
  EXPECT_EQ(reap(*region), 1U);
  {
    const NoFdLeft none;
    EXPECT_EQ(reap(*region), 1U);
  }
  child.kill();
  {
    const NoFdLeft none;
    EXPECT_EQ(reap(*region), 1U) << "who cannot look takes nobody for dead";
  }
  EXPECT_EQ(reap(*region), 0U);
}

TEST(LifeLock, SurvivesACloseOfAllFds) {
  const TestRegion region;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Child child([&] {
    CHILD_CHECK(tests::attach(region.options) != nullptr);
    CHILD_CHECK(dup2(ends[1], 0) == 0 && syscall(SYS_close_range, 1U, ~0U, 0U) == 0);
    return write(0, "x", 1) == 1 ? tests::wait_for_death() : 1;
  });
  close(ends[1]);
  char c = 0;
  EXPECT_EQ(read(ends[0], &c, 1), 1);
  close(ends[0]);
  EXPECT_EQ(reap(*region), 1U);
  child.kill();
  EXPECT_EQ(reap(*region), 0U);
}

TEST(LifeLock, WorksIfAllThreadKeysAreUsedUp) {
  const TestRegion region;
  Gate ready;
  Child child([&] {
    pthread_key_t key{};
    while (pthread_key_create(&key, nullptr) == 0) {
    }
    CHILD_CHECK(tests::attach(region.options) != nullptr);
    ready.give();
    return tests::wait_for_death();
  });
  ASSERT_TRUE(ready.take());
  EXPECT_EQ(reap(*region), 1U);
  child.kill();
  EXPECT_EQ(reap(*region), 0U);
}

// Checks whether a child that survives a killed process is mistaken for that process. `make` makes
// the child like fork(): it returns 0 in the child, and the child's pid in the parent.
template <typename Make>
void check_survivor(Make&& make, bool is_the_process) {
  const TestRegion region;
  Gate alone;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Child child([&] {
    CHILD_CHECK(tests::attach(region.options) != nullptr);
    if (make() == 0) {
      // Waits until the test closes its end.
      char c = 0;
      syscall(SYS_close, ends[1]);
      alone.give();
      syscall(SYS_read, ends[0], &c, 1);
      syscall(SYS_exit_group, 0);
    }
    return tests::wait_for_death();
  });
  close(ends[0]);
  ASSERT_TRUE(alone.take());
  EXPECT_EQ(reap(*region), 1U);
  child.kill();
  EXPECT_EQ(reap(*region), is_the_process ? 1U : 0U);
  close(ends[1]);
}

TEST(LifeLock, AForkedChildIsNotItsParent) {
  check_survivor([] { return fork(); }, false);
}

TEST(LifeLock, AChildByARawCloneIsNotItsParent) {
  check_survivor([] { return syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr); },
                 false);
}

// The vforked child still reads what its parent has pinned.
TEST(LifeLock, AVforkedChildIsItsParent) {
  if (tests::k_tsan) GTEST_SKIP() << "a vforked child confuses TSan";
  check_survivor(
      [] {
        return syscall(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, nullptr, nullptr, nullptr,
                       nullptr);
      },
      true);
}

TEST(LifeLock, AnExecIsTheEndOfTheOldProgram) {
  const TestRegion region;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Child child([&] {
    CHILD_CHECK(tests::attach(region.options) != nullptr);
    dup2(ends[1], STDOUT_FILENO);
    execl("/bin/sh", "sh", "-c", "echo; exec sleep 1000", nullptr);
    return 1;
  });
  char c = 0;
  ASSERT_EQ(read(ends[0], &c, 1), 1);
  EXPECT_EQ(kill(child.pid(), 0), 0);
  EXPECT_EQ(reap(*region), 0U);
  for (const int fd : ends) close(fd);
}

// If one thread forks while another thread attaches, the child must not keep the lock that the
// attaching thread acquires.
TEST(LifeLock, IsNotInheritedByAChildWhileItIsBeingTaken) {
  const TestRegion region;
  std::uint32_t slot = region->own_slot() + 1;
  auto fd = region->reopen(O_RDWR);
  ASSERT_TRUE(fd);
  LifeLock lock = LifeLock::open(std::move(*fd));
  ASSERT_TRUE(lock.take(slot));
  Gate closed;
  const Child child([&] {  // its first act is close_life_lock_after_fork
    closed.give();
    return tests::wait_for_death();
  });
  ASSERT_TRUE(closed.take());
  const LifeProbe probe(region->reopen(O_RDONLY));
  EXPECT_TRUE(probe.is_held(slot));
  { const LifeLock gone = std::move(lock); }
  EXPECT_FALSE(probe.is_held(slot));
}

enum class Proc { of_another, none };

// Checks a process that is attached in its own pid namespace and is later killed there.
void check_pid_namespace(Proc proc) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const TestRegion region;
  Gate ready, go, dead;
  const std::uint32_t parents_slot = region->own_slot();
  Child child([&] {
    CHILD_CHECK(unshare(CLONE_NEWPID | CLONE_NEWNS) == 0);
    CHILD_CHECK(mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0);
    if (proc == Proc::none) CHILD_CHECK(mount("none", "/proc", "tmpfs", 0, nullptr) == 0);
    Child inner = child_whose_thread_has_ended(region.options);
    // A process in that namespace examines this one.
    Child looker([&] {
      Region* const mine = tests::attach(region.options);
      CHILD_CHECK(mine != nullptr);
      CHILD_CHECK(process_is_alive(*mine, parents_slot));
      CHILD_CHECK(reap(*mine) == 2);
      mine->detach();
      return 0;
    });
    CHILD_CHECK(looker.wait() == 0);
    ready.give();
    if (!go.take()) return 1;
    inner.kill();
    dead.give();
    return tests::wait_for_death();
  });
  if (!ready.take()) GTEST_SKIP() << "no pid namespaces here";
  EXPECT_EQ(reap(*region), 1U);
  go.give();
  ASSERT_TRUE(dead.take());
  EXPECT_EQ(reap(*region), 0U);
}

TEST(LifeLock, HoldsAcrossPidNamespacesThatSeeTheWrongProc) {
  check_pid_namespace(Proc::of_another);
}

TEST(LifeLock, HoldsAcrossPidNamespacesWithoutProc) { check_pid_namespace(Proc::none); }

// Both processes have pid 1 in their namespaces, and so the same thread id.
TEST(RobustLock, WaitsForAHolderOfAnotherPidNamespace) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const auto shared = base::Mapping::shared_zeros(sizeof(pthread_mutex_t));
  ASSERT_TRUE(shared);
  auto* const mutex = reinterpret_cast<pthread_mutex_t*>(shared->data());
  ASSERT_EQ(init_robust_mutex(mutex), 0);
  const auto in_namespace = [](auto body) {
    return Child([&] {
      CHILD_CHECK(unshare(CLONE_NEWPID) == 0);
      return tests::run_in_child(body);
    });
  };
  Gate held, release;
  Child holder = in_namespace([&] {
    const RobustLock lock(mutex);
    CHILD_CHECK(lock);
    held.give();
    return release.take() ? 0 : 1;
  });
  if (!held.take()) GTEST_SKIP() << "no pid namespaces here";
  Child waiter = in_namespace([&] { return RobustLock(mutex, 30'000) ? 0 : 1; });
  while ((__atomic_load_n(&mutex->__data.__lock, __ATOMIC_RELAXED) &
          static_cast<int>(FUTEX_WAITERS)) == 0) {
    siginfo_t ended{};
    ASSERT_EQ(waitid(P_PID, waiter.pid(), &ended, WEXITED | WNOHANG | WNOWAIT), 0);
    ASSERT_EQ(ended.si_pid, 0) << "it has not waited";
    sched_yield();
  }
  release.give();
  EXPECT_EQ(holder.wait(), 0);
  EXPECT_EQ(waiter.wait(), 0);
}

TEST(LifeLock, FindsAllDeadProcessesInOnePassIfNoneLivesOrAllAreWanted) {
  const TestRegion region;
  const RobustLock lock(&region->header().lifecycle);
  std::vector<SlotClaim> claims;
  for (int i = 0; i < 100; ++i) {
    auto claim = claim_process_slot(*region, base::current_process(), region.options.job);
    ASSERT_TRUE(claim);
    claims.push_back(std::move(*claim));
  }
  const std::uint32_t own = region->own_slot();
  EXPECT_EQ(reap_dead_processes(*region, own, true), 100U);
  claims.resize(70);
  EXPECT_EQ(reap_dead_processes(*region, own, true), 70U);
  claims.clear();
  EXPECT_EQ(reap_dead_processes(*region, own), 0U) << "within a second";
}

}  // namespace
}  // namespace cube::cache
