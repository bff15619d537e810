// Makes a directory entry that exists only for a moment, in the directory of the region.
// Thread-safe and async-signal-safe.
#pragma once

#include <fmt/core.h>

#include <atomic>
#include <cerrno>
#include <climits>

#include "cache/base/sys.h"
#include "shim/process/process.h"

namespace cube::shim {

// Formats an absolute path into `name`, which has room for PATH_MAX bytes, and calls make(), which
// makes an entry at that path and returns the result of the system call. The pid is not unique,
// because containers can share the directory, and a killed process may have left an entry. So after
// -EEXIST, tries other names. Returns the result of the last make(), or -ENAMETOOLONG.
template <typename Make>
long make_temporary(char* name, const char* kind, Make make) {
  static constinit std::atomic<std::uint32_t> made{0};
  constexpr int k_most_tries = 1000;
  constexpr std::size_t k_own_length = 80;
  const auto& place = process::config().ram_dir;
  if (place.size() + k_own_length > PATH_MAX) return -ENAMETOOLONG;
  long result = -EEXIST;
  for (int i = 0; i < k_most_tries && result == -EEXIST; ++i) {
    *fmt::format_to_n(name, PATH_MAX - 1, "{}/cubeshim-{}-{}-{}", place, kind, base::sys::getpid(),
                      made.fetch_add(1, std::memory_order_relaxed))
         .out = '\0';
    result = make();
  }
  return result;
}

}  // namespace cube::shim
