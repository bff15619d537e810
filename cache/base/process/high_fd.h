// Opens out of the host's way: programs close, dup2 over and count on low numbers. Thread safety:
// all of it.
#pragma once

#include <utility>

#include "cache/base/unique_fd.h"

namespace cube::base {

inline constexpr int k_high_fd = 800;

// The number is at least k_high_fd where the limit of the process lets it be.
inline UniqueFd raise_fd(UniqueFd fd) {
  if (fd.get() >= k_high_fd) return fd;
  const long high = sys::fcntl(fd.get(), F_DUPFD_CLOEXEC, k_high_fd);
  return sys::failed(high) ? std::move(fd) : UniqueFd(static_cast<int>(high));
}

}  // namespace cube::base
