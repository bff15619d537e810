// Cancellation (pthread_cancel): a call that libc makes a cancellation point is one, too, when it
// is answered in user space. A request waits in the thread that it is for; to look there costs a
// call. So whoever cancels leaves a mark in the process first, and without the mark nobody looks: a
// hit pays one load. A pthread_cancel that passes us by (dlsym of a handle of libc) is noticed by
// the next call that libc answers. Thread safety and async-signal safety: yes.
#pragma once

#include <pthread.h>

#include <atomic>

namespace cube::shim {

extern constinit std::atomic<bool> g_may_be_cancelled;

// First of all in such a call: nothing has been read, moved or closed yet.
inline void cancellation_point() {
  if (g_may_be_cancelled.load(std::memory_order_relaxed)) [[unlikely]]
    pthread_testcancel();
}

// Around a call that libc does not make a cancellation point (syscall).
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
