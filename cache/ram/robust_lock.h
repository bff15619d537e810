// A process-shared robust mutex in the region: when its holder dies, the kernel hands it to the next.
// The memory that a critical section guards must make sense after a death at any instruction.
// Thread safety: yes. Not async-signal-safe.
#pragma once

#include <pthread.h>

#include <cerrno>
#include <ctime>

namespace cube::cache {

inline int init_robust_mutex(pthread_mutex_t* mutex) {
  pthread_mutexattr_t attributes;
  int error = pthread_mutexattr_init(&attributes);
  if (error == 0) error = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  if (error == 0) error = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  // A signal handler that exits while its thread holds the mutex gets an error, not a deadlock.
  if (error == 0) error = pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
  if (error == 0) error = pthread_mutex_init(mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  return error;
}

// Waits no longer than two seconds: a stopped process (SIGSTOP, a debugger) must not hold up the others.
class RobustLock {
 public:
  explicit RobustLock(pthread_mutex_t* mutex) : mutex_(mutex) {
    timespec deadline{};
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += 2;
    int error = pthread_mutex_timedlock(mutex_, &deadline);
    if (error == EOWNERDEAD) error = pthread_mutex_consistent(mutex_);
    held_ = error == 0;
  }
  ~RobustLock() {
    if (held_) pthread_mutex_unlock(mutex_);
  }
  RobustLock(const RobustLock&) = delete;
  RobustLock& operator=(const RobustLock&) = delete;
  explicit operator bool() const { return held_; }

 private:
  pthread_mutex_t* mutex_;
  bool held_ = false;
};

}  // namespace cube::cache
