#include "shim/fd_path.h"

#include <sys/vfs.h>

#include <charconv>

#include "shim/calls/mappings.h"
#include "shim/fd_table.h"
#include "shim/materialize.h"
#include "shim/path_filter.h"
#include "shim/placeholder.h"

namespace cube::shim {

namespace sys = base::sys;

int named_fd(const char* path) {
  if (!path_filter::is_readable_pointer(path) || path[0] != '/' || (path[1] != 'p' && path[1] != 'd')) return -1;
  std::string_view text(path);
  if (text.starts_with("/dev/")) {
    if (text == "/dev/stdin") return 0;
    if (text == "/dev/stdout") return 1;
    if (text == "/dev/stderr") return 2;
    if (!text.starts_with("/dev/fd")) return -1;
    text.remove_prefix(7);
  } else if (text.starts_with("/proc/")) {
    // /proc/self/fd, /proc/thread-self/fd, /proc/PID/fd, /proc/self/task/TID/fd, fdinfo beside each.
    const std::size_t at = text.find("/fd", 5);
    if (at == std::string_view::npos) return -1;
    text.remove_prefix(at + 3);
    if (text.starts_with("info")) text.remove_prefix(4);
  } else {
    return -1;
  }
  placeholder::unpark();
  mappings::drop_region_fd();
  if (text.size() < 2 || text.front() != '/') return -1;
  int fd = -1;
  const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), fd);
  return error == std::errc{} && end == text.data() + text.size() ? fd : -1;
}

int bare_number(const char* path) {
  if (!path_filter::is_readable_pointer(path) || *path < '0' || *path > '9') return -1;
  int number = 0;
  for (; *path >= '0' && *path <= '9' && number < FdTable::k_capacity; ++path) number = number * 10 + (*path - '0');
  return *path == '\0' ? number : -1;
}

void materialize_named_slow(const char* path, int dir) {
  int fd = named_fd(path);
  // A bare number that is served here, below what may be /proc/self/fd.
  if (const int bare = fd < 0 ? bare_number(path) : -1; g_fds.kind(bare) == RowKind::served) {
    struct ::statfs fs {};
    constexpr decltype(fs.f_type) k_proc = 0x9fa0;
    const int below = dir == AT_FDCWD ? static_cast<int>(sys::open(".", O_PATH | O_CLOEXEC)) : dir;
    if (!sys::failed(sys::raw(SYS_fstatfs, below, sys::arg(&fs))) && fs.f_type == k_proc) fd = bare;
    if (below != dir) sys::close(below);
  }
  if (fd >= 0 && process::owns_table()) materialize(fd, "/proc/self/fd");
}

}  // namespace cube::shim
