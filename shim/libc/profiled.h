// Wraps calls that the profiler records (shim/profile). While the profiler is off, a wrapped call
// costs one more load and one untaken jump. If the call is a cancellation point, it costs nothing
// more, because the check for a cancellation also covers the profiler. Only for files in this
// folder. Thread safety: as libc's.
#pragma once

#include "cache/base/process/went_out.h"
#include "shim/process/cancellation.h"
#include "shim/process/process.h"
#include "shim/profile/profile.h"

namespace cube::shim {

// Not inlined, so that its frame is gone when the call is recorded. The recording must work even on
// a small stack.
template <typename Plain>
__attribute__((noinline)) auto by_itself(Plain& plain) -> decltype(plain()) {
  return plain();
}

// `plain` is the whole call. A child of vfork is not recorded, because it has its parent's memory
// but fds of its own.
template <typename Plain>
__attribute__((noinline)) auto profiled(const profile::Subject& subject, Plain&& plain)
    -> decltype(plain()) {
  profile::Call call;
  if (!process::owns_table() || !call.begin(subject)) return by_itself(plain);
  const auto result = by_itself(plain);
  call.end(subject, (long)result);  // NOLINT: a pointer of mmap's, too
  return result;
}

// Call this first in a cancellation point. Returns true if the profiler is on. One load checks for
// both, because the profiler sets the mark of a cancellation when it starts.
inline bool cancel_or_profile() {
  if (!g_may_be_cancelled.load(std::memory_order_relaxed)) [[likely]]
    return false;
  pthread_testcancel();
  return profile::is_on();
}

// Notes that `copy` is an fd of the same open file as `fd`, or -1 if the dup failed.
inline int copied(int fd, int copy) {
  if (profile::is_on() && process::owns_table()) [[unlikely]]
    profile::note_dup(fd, copy);
  return copy;
}
// Notes that these fds are closed.
inline void closed_from(unsigned first, unsigned last) {
  if (profile::is_on() && process::owns_table()) [[unlikely]]
    profile::note_closed_from(first, last);
}

// Notes for the profiler that libc made the call. Returns `result`.
template <typename Result>
inline Result by_kernel(Result result) {
  base::note_way_out();
  return result;
}

}  // namespace cube::shim

// CUBE_PLAIN makes the lambda `plain` from a body in braces. CUBE_PROFILED calls `plain`. If the
// profiler is on, it also records the call as `kind_of` with the fields that follow.
#define CUBE_PLAIN(type, ...) \
  const auto plain = [&]() __attribute__((always_inline))->type __VA_ARGS__
#define CUBE_SUBJECT(kind_of, ...)                                                                 \
  cube::shim::profile::Subject {                                                                   \
    .kind = cube::shim::profile::Kind::kind_of, .caller = __builtin_return_address(0), __VA_ARGS__ \
  }
#define CUBE_PROFILED(kind_of, ...)                                         \
  if (cube::shim::profile::is_on()) [[unlikely]]                            \
    return cube::shim::profiled(CUBE_SUBJECT(kind_of, __VA_ARGS__), plain); \
  return plain()
#define CUBE_CANCEL_OR_PROFILED(kind_of, ...)                               \
  if (cube::shim::cancel_or_profile()) [[unlikely]]                         \
    return cube::shim::profiled(CUBE_SUBJECT(kind_of, __VA_ARGS__), plain); \
  return plain()
