// Cancellation points (pthread_cancel). A call that is a cancellation point in libc is also a
// cancellation point when the shim answers it. A check for a pending request costs a function call,
// which is too slow for a hit. So pthread_cancel first sets a mark in the process, and threads
// check only if the mark is set. A hit then costs one more load. If a pthread_cancel bypasses the
// shim (dlvsym), the next call that libc answers notices the request. Thread-safe and
// async-signal-safe.
#pragma once

#include <pthread.h>

#include <atomic>

namespace cube::shim {

extern constinit std::atomic<bool> g_may_be_cancelled;

// Call this at the start of a cancellation point, before anything has been read, moved or closed.
inline void cancellation_point() {
  if (g_may_be_cancelled.load(std::memory_order_relaxed)) [[unlikely]]
    pthread_testcancel();
}

// The scope of a call that is not a cancellation point in libc (syscall).
class NoCancel {
 public:
  NoCancel() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancel() { pthread_setcancelstate(before_, &before_); }
  NoCancel(const NoCancel&) = delete;
  NoCancel& operator=(const NoCancel&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace cube::shim
