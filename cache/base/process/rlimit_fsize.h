// RLIMIT_FSIZE, the largest size of a file. Writing or growing a file beyond this limit raises
// SIGXFSZ, which ends the program. So the library checks the limit before it creates a file in a
// thread of the program. Thread-safe and async-signal-safe.
#pragma once

#include <sys/resource.h>

#include <cstdint>

#include "cache/base/sys.h"

namespace cube::base {

// The largest size of a file in bytes; UINT64_MAX: there is no limit.
inline std::uint64_t file_size_limit() {
  struct ::rlimit limit {};
  if (sys::failed(sys::raw(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, sys::arg(&limit))) ||
      limit.rlim_cur == RLIM_INFINITY)
    return UINT64_MAX;
  return limit.rlim_cur;
}

}  // namespace cube::base
