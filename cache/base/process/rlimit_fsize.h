// RLIMIT_FSIZE: to write or grow a file beyond it brings SIGXFSZ, which ends the program, not an
// error. Our code asks here before it makes a file in a thread of the program. Thread safety: all
// of it; async-signal-safe.
#pragma once

#include <sys/resource.h>

#include <cstdint>

#include "cache/base/sys.h"

namespace cube::base {

// Bytes that a file may have; UINT64_MAX: there is no limit.
inline std::uint64_t file_size_limit() {
  struct ::rlimit limit {};
  if (sys::failed(sys::raw(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, sys::arg(&limit))) ||
      limit.rlim_cur == RLIM_INFINITY)
    return UINT64_MAX;
  return limit.rlim_cur;
}

}  // namespace cube::base
