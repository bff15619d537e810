// Calls that file_calls answers if it can, and libc otherwise. Only for the files of this folder.
// Thread safety: as libc's.
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
// Like CUBE_ANSWER_OR, but for a read: libc's own is a cancellation point, and the profiler records
// it with these fields.
#define CUBE_CANCEL_OR_ANSWER_OR(type, ours, libcs, ...)    \
  CUBE_PLAIN(type, { CUBE_ANSWER_OR(type, ours, libcs); }); \
  CUBE_CANCEL_OR_PROFILED(read, __VA_ARGS__)

namespace cube::shim {

// For one of our paths (calls/name/unmounted_paths.h), which cannot be changed.
inline int refuse(int error = EROFS) {
  errno = error;
  return -1;
}

}  // namespace cube::shim
