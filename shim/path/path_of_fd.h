// The real place of an open file, as the kernel tells it without asking the origin.
// Thread safety: pure; async-signal-safe.
#pragma once

#include <climits>
#include <string_view>

#include "cache/base/process/proc_fd_name.h"
#include "cache/base/sys.h"

namespace cube::shim {

// Its length, or -errno. `path` has room for PATH_MAX bytes, and gets no zero at its end.
inline long read_path_of_fd(int fd, char* path) {
  return base::sys::readlink(base::ProcFdName(fd).c_str(), path, PATH_MAX);
}

// Empty where it has no name. The view is into `path`, and ends without a null.
inline std::string_view path_of_fd(int fd, char (&path)[PATH_MAX]) {
  const long n = read_path_of_fd(fd, path);
  return base::sys::failed(n) ? std::string_view()
                              : std::string_view(path, static_cast<std::size_t>(n));
}

}  // namespace cube::shim
