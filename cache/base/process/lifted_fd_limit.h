// Makes short-lived fds possible even if the program has reached its limit of open fds
// (RLIMIT_NOFILE). Thread-safe and async-signal-safe. The caller must block signals, because a jump
// out of a handler would leave the limit lifted.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>

#include "cache/base/process/block_signals.h"
#include "cache/base/sys.h"

namespace cube::base {

// Lifts the process's soft limit of fds while this object lives. The program may have lowered the
// limit below the number of its open fds. In an unprivileged process whose hard limit is equally
// low, lifting has no effect. Threads that lift the limit at the same time share one lift, because
// the limit belongs to the process. The last of these threads restores the limit, unless the
// program has set another limit in between. A child of vfork shares the memory of its parent, but
// has its own limit.
class LiftedFdLimit {
 public:
  LiftedFdLimit() : lift_(is_of_process() ? g_lift : of_child_) {
    const Lock lock(lift_);
    lift_.users.fetch_add(1, std::memory_order_relaxed);
    struct ::rlimit before {};
    // If the soft limit equals `lifted`, another thread has lifted it.
    if (!get(before) || before.rlim_cur == lift_.lifted.load(std::memory_order_relaxed)) return;
    struct ::rlimit wide = before;
    wide.rlim_cur = std::max<rlim_t>(before.rlim_cur, 1 << 17);
    wide.rlim_max = std::max(wide.rlim_max, wide.rlim_cur);
    if (lift_.lift(before, wide)) return;
    wide.rlim_cur = wide.rlim_max = before.rlim_max;
    lift_.lift(before, wide);
  }
  ~LiftedFdLimit() {
    const Lock lock(lift_);
    if (lift_.users.fetch_sub(1, std::memory_order_relaxed) == 1) lift_.restore();
  }
  LiftedFdLimit(const LiftedFdLimit&) = delete;
  LiftedFdLimit& operator=(const LiftedFdLimit&) = delete;

  // Runs the program's call that sets its limit of fds, so that no later restore undoes the call.
  template <typename Call>
  static int set_by_program(Call&& call) {
    if (!is_of_process()) return call();
    const BlockSignals block;
    const Lock lock(g_lift);
    const int result = call();
    if (result == 0) g_lift.lifted.store(0, std::memory_order_release);
    return result;
  }

  // Call it at the start of a process and in a forked child. If threads of the parent had lifted
  // the limit, the child restores it, because these threads do not exist in the child.
  static void become_process() {
    g_process.store(sys::getpid(), std::memory_order_relaxed);
    g_lift.locked.store(0, std::memory_order_relaxed);
    g_lift.users.store(0, std::memory_order_relaxed);
    g_lift.restore();
  }

 private:
  // Initially all zero.
  struct Lift {
    std::atomic<std::uint32_t> locked;
    // `locked` guards this member and all members below it.
    std::atomic<int> users;
    // The soft limit while it is lifted. 0: it is not lifted.
    std::atomic<rlim_t> lifted;
    // The limits to restore, valid while `lifted` is not 0.
    std::atomic<rlim_t> program_soft, program_hard;

    bool lift(const struct ::rlimit& before, const struct ::rlimit& wide) {
      if (wide.rlim_cur <= before.rlim_cur) return false;
      program_soft.store(before.rlim_cur, std::memory_order_relaxed);
      program_hard.store(before.rlim_max, std::memory_order_relaxed);
      // Stores `lifted` before the limit changes, so that a child that is forked in between
      // restores the limit.
      lifted.store(wide.rlim_cur, std::memory_order_release);
      if (set(wide)) return true;
      lifted.store(0, std::memory_order_release);
      return false;
    }
    void restore() {
      struct ::rlimit now {};
      const rlim_t raised = lifted.load(std::memory_order_acquire);
      if (raised == 0 || !get(now)) return;
      if (now.rlim_cur == raised)
        set({program_soft.load(std::memory_order_relaxed),
             program_hard.load(std::memory_order_relaxed)});
      lifted.store(0, std::memory_order_release);
    }
  };

  // Makes a change of `users` and a change of the limit atomic. Without this lock, a thread could
  // rely on a lifted limit that the last user is about to restore. The lock is held only for a few
  // system calls that do not block. While a thread holds the lock, it blocks signals, so no handler
  // waits for a lock that its own thread holds.
  class Lock {
   public:
    explicit Lock(Lift& lift) : locked_(lift.locked) {
      constexpr std::uint64_t k_look_again_ns = 1'000'000;
      while (locked_.exchange(1, std::memory_order_acquire) != 0)
        sys::futex_wait(&locked_, 1, k_look_again_ns);
    }
    ~Lock() {
      locked_.store(0, std::memory_order_release);
      sys::futex_wake_all(&locked_);
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    std::atomic<std::uint32_t>& locked_;
  };

  static bool get(struct ::rlimit& limit) {
    return !sys::failed(sys::raw(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, sys::arg(&limit)));
  }
  static bool set(const struct ::rlimit& limit) {
    return !sys::failed(sys::raw(SYS_prlimit64, 0, RLIMIT_NOFILE, sys::arg(&limit)));
  }
  // False in a child of vfork.
  static bool is_of_process() {
    const int process = g_process.load(std::memory_order_relaxed);
    return process == 0 || process == sys::getpid();
  }

  static constinit inline Lift g_lift{};
  // The pid of this process. 0: become_process() has not been called yet.
  static constinit inline std::atomic<int> g_process{0};
  Lift of_child_;
  Lift& lift_;
};

// Runs `call`, which creates an fd. If no fd below the limit is free, runs `call` again with the
// limit lifted. The second call can fail with EMFILE, too.
template <typename Call>
long within_lifted_fd_limit(Call&& call) {
  const long fd = call();
  if (fd != -EMFILE) return fd;
  const BlockSignals block;
  const LiftedFdLimit lifted;
  return call();
}

// Opens the path with O_PATH, to inspect the file to which it leads. Returns the fd or -errno.
inline long open_path_only(int dir, const char* path, int more_flags = 0) {
  return within_lifted_fd_limit(
      [&] { return sys::openat(dir, path, O_PATH | O_CLOEXEC | more_flags); });
}

// Whether the result is an error that reports a lack of fds or memory, and says nothing about the
// file.
inline bool is_exhausted(long result) {
  return result == -EMFILE || result == -ENFILE || result == -ENOMEM;
}

}  // namespace cube::base
