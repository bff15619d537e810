// Moves the library's fds to high numbers. Low numbers are not safe: programs close low fds,
// replace them by dup2, and expect low numbers for their own files. Thread-safe.
#pragma once

#include <utility>

#include "cache/base/unique_fd.h"

namespace cube::base {

inline constexpr int k_high_fd = 800;

// Moves the fd to k_high_fd or above, if the limit of the process allows it.
template <typename Fd>
Fd raise_fd(Fd fd) {
  if (!fd || fd.get() >= k_high_fd) return fd;
  const long high = sys::fcntl(fd.get(), F_DUPFD_CLOEXEC, k_high_fd);
  return sys::failed(high) ? std::move(fd) : Fd(static_cast<int>(high));
}

}  // namespace cube::base
