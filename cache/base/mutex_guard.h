// Holds a pthread mutex of this process for a scope. Also blocks all signals, because a handler
// that jumps out (siglongjmp) would leave the mutex locked. The guard converts to false if the
// mutex could not be locked, for instance because the thread already holds it
// (PTHREAD_MUTEX_ERRORCHECK). Thread-safe. Not async-signal-safe.
#pragma once

#include "cache/base/libc_functions.h"
#include "cache/base/process/block_signals.h"

namespace cube::base {

class MutexGuard {
 public:
  explicit MutexGuard(pthread_mutex_t* mutex) : mutex_(mutex), held_(g_libc.lock(mutex) == 0) {}
  ~MutexGuard() {
    if (held_) g_libc.unlock(mutex_);
  }
  explicit operator bool() const { return held_; }
  MutexGuard(const MutexGuard&) = delete;
  MutexGuard& operator=(const MutexGuard&) = delete;

 private:
  const BlockSignals block_;
  pthread_mutex_t* mutex_;
  bool held_;
};

}  // namespace cube::base
