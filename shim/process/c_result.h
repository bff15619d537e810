// The only conversion of a kernel result (-errno) into libc's convention (-1 and errno). Thread
// safety: each thread has its own errno.
#pragma once

#include <cerrno>

#include "cache/base/sys.h"

namespace cube::shim {

inline long to_c(long kernel_result) {
  if (!base::sys::failed(kernel_result)) return kernel_result;
  errno = static_cast<int>(-kernel_result);
  return -1;
}

// Restores errno at the end of its scope, because a call that succeeds must not change errno.
class KeepErrno {
 public:
  KeepErrno() : saved_(errno) {}
  ~KeepErrno() { errno = saved_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  int saved_;
};

}  // namespace cube::shim
