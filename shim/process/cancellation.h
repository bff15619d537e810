// Cancellation (pthread_cancel): a call that is a cancellation point in libc is also one when it is
// answered in user space. To check for a pending request, a thread has to make a call. So
// pthread_cancel first sets a mark in the process, and without the mark no thread checks: a hit
// pays one load. A pthread_cancel that bypasses the shim (dlvsym) is noticed by the next call that
// libc answers. Thread-safe and async-signal-safe.
#pragma once

#include <pthread.h>

#include <atomic>

namespace cube::shim {

extern constinit std::atomic<bool> g_may_be_cancelled;

// Call it first in such a call, before anything has been read, moved or closed.
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
