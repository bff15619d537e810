// The real path of an open file. The kernel reports this path without asking the origin. Thread
// safety: pure; async-signal-safe.
#pragma once

#include <climits>
#include <string_view>

#include "cache/base/process/proc_fd_name.h"
#include "cache/base/sys.h"

namespace cube::shim {

// Returns the length or -errno. `path` must have room for PATH_MAX bytes. Writes no terminating
// null.
inline long read_path_of_fd(int fd, char* path) {
  return base::sys::readlink(base::ProcFdName(fd).c_str(), path, PATH_MAX);
}

// Returns an empty view if the file has no path. The view points into `path` and has no terminating
// null.
inline std::string_view path_of_fd(int fd, char (&path)[PATH_MAX]) {
  const long n = read_path_of_fd(fd, path);
  return base::sys::failed(n) ? std::string_view()
                              : std::string_view(path, static_cast<std::size_t>(n));
}

}  // namespace cube::shim
