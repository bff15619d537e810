// The real place of an open file, as the kernel tells it without asking the origin.
// Thread safety: pure; async-signal-safe.
#pragma once

#include <fmt/core.h>

#include <climits>
#include <string_view>

#include "cache/base/sys.h"

namespace cube::shim {

// Empty where it has no name. The view is into `path`, and ends without a null.
inline std::string_view path_of_fd(int fd, char (&path)[PATH_MAX]) {
  char link[64];
  *fmt::format_to_n(link, sizeof link - 1, "/proc/self/fd/{}", fd).out = '\0';
  const long n = base::sys::readlink(link, path, sizeof path);
  return base::sys::failed(n) ? std::string_view() : std::string_view(path, static_cast<std::size_t>(n));
}

}  // namespace cube::shim
