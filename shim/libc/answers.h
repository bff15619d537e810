// Macros for calls that file_calls answers if it can. Otherwise, libc makes the call. Only for
// files in this folder. Thread safety: as libc's.
#pragma once

#include "shim/libc/exports.h"
#include "shim/libc/profiled.h"
#include "shim/process/c_result.h"
#include "shim/process/cancellation.h"
#include "shim/process/real_libc.h"

// Returns the answer of file_calls if there is one, otherwise libc's.
#define CUBE_ANSWER_OR(type, ours, libcs)                           \
  if (const auto answer = ours; answer) return (type)to_c(*answer); \
  return shim::by_kernel(libcs)
// Like CUBE_ANSWER_OR, but for a read, which is a cancellation point and which the profiler records
// with these fields.
#define CUBE_CANCEL_OR_ANSWER_OR(type, ours, libcs, ...)    \
  CUBE_PLAIN(type, { CUBE_ANSWER_OR(type, ours, libcs); }); \
  CUBE_CANCEL_OR_PROFILED(read, __VA_ARGS__)

namespace cube::shim {

// The result of a call that would change one of our paths (calls/name/unmounted_paths.h), which are
// read-only.
inline int refuse(int error = EROFS) {
  errno = error;
  return -1;
}

}  // namespace cube::shim
