#include "shim/path/fd_path.h"

#include <sys/vfs.h>

#include <charconv>

#include "shim/fd/fd_table.h"
#include "shim/fd/materialize.h"
#include "shim/fd/placeholder.h"
#include "shim/fd/region_fd.h"
#include "shim/path/path_filter.h"

namespace cube::shim {

namespace sys = base::sys;

namespace {

// Room for "/proc/self/task/4194304/fd/1048576" and a little more. A longer path cannot name an fd.
using FdName = char[96];

// Returns the path without "//" and "/./"; empty if it is too long.
std::string_view plain_spelling(const char* path, FdName& to) {
  std::size_t n = 0;
  for (; *path != '\0'; ++path) {
    if (path[0] == '/' && (path[1] == '/' || (path[1] == '.' && path[2] == '/'))) {
      if (path[1] == '.') ++path;
      continue;
    }
    if (n == sizeof to) return {};
    to[n++] = *path;
  }
  return {to, n};
}

}  // namespace

int named_fd(const char* path) {
  if (!path_filter::is_readable_pointer(path) || path[0] != '/') return -1;
  FdName plain;
  std::string_view text = plain_spelling(path, plain);
  if (text.starts_with("/dev/")) {
    if (text == "/dev/stdin") return 0;
    if (text == "/dev/stdout") return 1;
    if (text == "/dev/stderr") return 2;
    if (!text.starts_with("/dev/fd")) return -1;
    text.remove_prefix(7);
  } else if (text.starts_with("/proc/")) {
    // /proc/self/fd, /proc/thread-self/fd, /proc/PID/fd, /proc/self/task/TID/fd, and fdinfo in each
    // of these directories.
    const std::size_t at = text.rfind("/fd");
    if (at == std::string_view::npos) return -1;
    text.remove_prefix(at + 3);
    if (text.starts_with("info")) text.remove_prefix(4);
  } else {
    return -1;
  }
  placeholder::unpark();
  region_fd::drop();
  if (text.size() < 2 || text.front() != '/') return -1;
  int fd = -1;
  const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), fd);
  return error == std::errc{} && end == text.data() + text.size() ? fd : -1;
}

int bare_fd(const char* path) {
  if (!path_filter::is_readable_pointer(path) || *path < '0' || *path > '9') return -1;
  int fd = 0;
  for (; *path >= '0' && *path <= '9' && fd < FdTable::k_capacity; ++path)
    fd = fd * 10 + (*path - '0');
  return *path == '\0' ? fd : -1;
}

void materialize_named_slow(const char* path, int dir) {
  int fd = named_fd(path);
  // The path may be the bare number of a served fd, relative to a directory that may be
  // /proc/self/fd.
  if (const int bare = fd < 0 ? bare_fd(path) : -1; g_fds.kind(bare) == RowKind::served) {
    struct ::statfs fs {};
    constexpr decltype(fs.f_type) k_proc = 0x9fa0;
    // This function must not open an fd. If a signal handler parked a higher fd while that fd was
    // open, the next open would return the parked fd although a lower fd is free again.
    const long error = dir == AT_FDCWD ? sys::raw(SYS_statfs, sys::arg("."), sys::arg(&fs))
                                       : sys::raw(SYS_fstatfs, dir, sys::arg(&fs));
    if (!sys::failed(error) && fs.f_type == k_proc) fd = bare;
  }
  if (fd >= 0 && process::owns_table()) materialize(fd, "/proc/self/fd");
}

}  // namespace cube::shim
