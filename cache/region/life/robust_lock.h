// A process-shared robust mutex in the region. When its holder dies, the kernel passes the mutex to
// the next process. The memory that the mutex guards must be consistent even if the holder dies at
// an arbitrary instruction. Thread-safe. Not async-signal-safe.
#pragma once

#include <pthread.h>

#include <cerrno>
#include <ctime>

#include "cache/base/clock.h"
#include "cache/base/libc_functions.h"
#include "cache/base/process/block_signals.h"
#include "cache/base/sanitizers.h"

namespace cube::cache {

inline int init_robust_mutex(pthread_mutex_t* mutex) {
  pthread_mutexattr_t attributes;
  int error = pthread_mutexattr_init(&attributes);
  if (error == 0) error = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  if (error == 0) error = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  // Not ERRORCHECK: threads in different pid namespaces can have the same thread id, so libc would
  // take one for the other. A thread that already holds the mutex waits until the deadline.
  if (error == 0) error = pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_NORMAL);
  if (error == 0) error = pthread_mutex_init(mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  return error;
}

// Whether this mutex has the same kind as `fresh`, which init_robust_mutex has initialized. In a
// corrupt file a mutex may have another kind, with which libc would wait forever or abort.
inline bool is_robust_mutex(const pthread_mutex_t& mutex, const pthread_mutex_t& fresh) {
  return mutex.__data.__kind == fresh.__data.__kind;
}

// Holds the mutex for a scope. Also blocks all signals, because a handler that leaves the scope by
// a jump would leave the mutex locked. The constructor waits for at most `at_most_ms`, so that a
// stopped process (SIGSTOP, a debugger) does not hold up the others. If the constructor could not
// get the mutex, the object converts to false.
class RobustLock {
 public:
  explicit RobustLock(pthread_mutex_t* mutex, long at_most_ms = 2000) : mutex_(mutex) {
    // The wall clock is the last resort, because it can be set during the wait. ThreadSanitizer
    // does not support pthread_mutex_clocklock.
    const bool by_wall_clock = &__tsan_init != nullptr || base::g_libc.clocklock == nullptr;
    timespec deadline = base::read_clock(by_wall_clock ? CLOCK_REALTIME : CLOCK_MONOTONIC);
    deadline.tv_sec += at_most_ms / 1000;
    deadline.tv_nsec += at_most_ms % 1000 * 1'000'000;
    if (deadline.tv_nsec >= 1'000'000'000) {
      ++deadline.tv_sec;
      deadline.tv_nsec -= 1'000'000'000;
    }
    const base::LibcFunctions& libc = base::g_libc;
    int error = by_wall_clock ? libc.timedlock(mutex_, &deadline)
                              : libc.clocklock(mutex_, CLOCK_MONOTONIC, &deadline);
    if (error == EOWNERDEAD) error = libc.consistent(mutex_);
    held_ = error == 0;
  }
  ~RobustLock() {
    if (held_) base::g_libc.unlock(mutex_);
  }
  RobustLock(const RobustLock&) = delete;
  RobustLock& operator=(const RobustLock&) = delete;
  explicit operator bool() const { return held_; }

 private:
  const base::BlockSignals block_;
  pthread_mutex_t* mutex_;
  bool held_ = false;
};

}  // namespace cube::cache
