// Makes short-lived fds possible when the program has reached its limit of fds. Thread-safe and
// async-signal-safe. The caller must block signals, because a jump out of a handler would leave the
// limit lifted.
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

// Raises the process's soft limit of fds while this object lives, because the program may have
// lowered the limit below its open fds. Lifting has no effect in an unprivileged process whose hard
// limit is as low. The limit belongs to the process, so threads that lift it at the same time share
// the lift. The last of these threads restores the limit, unless the program has set another limit
// by then.
class LiftedFdLimit {
 public:
  LiftedFdLimit() {
    const Lock lock;
    g_users.fetch_add(1, std::memory_order_relaxed);
    struct ::rlimit before {};
    // If the soft limit is g_lifted, another thread has lifted it.
    if (!get(before) || before.rlim_cur == g_lifted.load(std::memory_order_relaxed)) return;
    struct ::rlimit wide = before;
    wide.rlim_cur = std::max<rlim_t>(before.rlim_cur, 1 << 17);
    wide.rlim_max = std::max(wide.rlim_max, wide.rlim_cur);
    if (lift(before, wide)) return;
    wide.rlim_cur = wide.rlim_max = before.rlim_max;
    lift(before, wide);
  }
  ~LiftedFdLimit() {
    const Lock lock;
    if (g_users.fetch_sub(1, std::memory_order_relaxed) == 1) restore();
  }
  LiftedFdLimit(const LiftedFdLimit&) = delete;
  LiftedFdLimit& operator=(const LiftedFdLimit&) = delete;

  // Restores the limit in a forked child if threads of the parent had lifted it. These threads do
  // not exist in the child.
  static void forget() {
    g_locked.store(0, std::memory_order_relaxed);
    g_users.store(0, std::memory_order_relaxed);
    restore();
  }

 private:
  // This lock makes the count and the limit change together. Otherwise a thread could find the
  // limit lifted just before the last user restores it. The lock is held for a few system calls
  // that do not wait. Signals are blocked, so no handler waits for a lock of its own thread.
  class Lock {
   public:
    Lock() {
      constexpr std::uint64_t k_look_again_ns = 1'000'000;
      while (g_locked.exchange(1, std::memory_order_acquire) != 0)
        sys::futex_wait(&g_locked, 1, k_look_again_ns);
    }
    ~Lock() {
      g_locked.store(0, std::memory_order_release);
      sys::futex_wake_all(&g_locked);
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
  };

  static bool get(struct ::rlimit& limit) {
    return !sys::failed(sys::raw(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, sys::arg(&limit)));
  }
  static bool set(const struct ::rlimit& limit) {
    return !sys::failed(sys::raw(SYS_prlimit64, 0, RLIMIT_NOFILE, sys::arg(&limit)));
  }
  static bool lift(const struct ::rlimit& before, const struct ::rlimit& wide) {
    if (wide.rlim_cur <= before.rlim_cur) return false;
    g_program_soft.store(before.rlim_cur, std::memory_order_relaxed);
    g_program_hard.store(before.rlim_max, std::memory_order_relaxed);
    // Stored before the change, so that a child that is forked now restores the limit.
    g_lifted.store(wide.rlim_cur, std::memory_order_release);
    if (set(wide)) return true;
    g_lifted.store(0, std::memory_order_release);
    return false;
  }
  static void restore() {
    struct ::rlimit now {};
    const rlim_t lifted = g_lifted.load(std::memory_order_acquire);
    if (lifted == 0 || !get(now)) return;
    if (now.rlim_cur == lifted)
      set({g_program_soft.load(std::memory_order_relaxed),
           g_program_hard.load(std::memory_order_relaxed)});
    g_lifted.store(0, std::memory_order_release);
  }

  static constinit inline std::atomic<std::uint32_t> g_locked{0};
  // Guarded by g_locked, like all variables below.
  static constinit inline std::atomic<int> g_users{0};
  // The soft limit while it is lifted. 0: it is not lifted.
  static constinit inline std::atomic<rlim_t> g_lifted{0};
  // The limits to restore, valid while g_lifted is not 0.
  static constinit inline std::atomic<rlim_t> g_program_soft{0};
  static constinit inline std::atomic<rlim_t> g_program_hard{0};
};

// Runs `call`, which creates an fd. If no fd below the limit is free, runs `call` again with the
// limit lifted. May return -EMFILE.
template <typename Call>
long within_lifted_fd_limit(Call&& call) {
  const long fd = call();
  if (fd != -EMFILE) return fd;
  const BlockSignals block;
  const LiftedFdLimit lifted;
  return call();
}

// Opens the path with O_PATH, to look at what it leads to. Returns the fd or -errno.
inline long open_path_only(int dir, const char* path, int more_flags = 0) {
  return within_lifted_fd_limit(
      [&] { return sys::openat(dir, path, O_PATH | O_CLOEXEC | more_flags); });
}

// Whether the result is an error that reports a lack of fds or memory, not a property of the file.
inline bool is_exhausted(long result) {
  return result == -EMFILE || result == -ENFILE || result == -ENOMEM;
}

}  // namespace cube::base
