#include "prefetch/whole_file.h"

#include <fmt/core.h>
#include <linux/openat2.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <string_view>

namespace cube::prefetch {
namespace {

namespace sys = base::sys;

constinit std::atomic<bool> g_has_openat2{true};

}  // namespace

base::Result<int> open_for_fetch(const char* path, Links& links) {
  links = Links::unknown;
  long fd = -ENOSYS;
  if (g_has_openat2.load(std::memory_order_relaxed)) {
    struct ::open_how how {};
    how.flags = k_open_flags;
    how.resolve = RESOLVE_NO_SYMLINKS;
    fd = sys::raw(SYS_openat2, AT_FDCWD, sys::arg(path), sys::arg(&how), sizeof how);
    if (fd == -ENOSYS || fd == -EPERM) g_has_openat2.store(false, std::memory_order_relaxed);
    links = fd == -ELOOP ? Links::some : Links::none;
  }
  if (fd == -ELOOP || fd == -ENOSYS || fd == -EPERM) {
    if (fd != -ELOOP) links = Links::unknown;
    fd = sys::open(path, k_open_flags);
  }
  if (sys::failed(fd)) return base::fail(static_cast<int>(-fd));
  return static_cast<int>(fd);
}

bool has_no_links(int fd, const char* path) {
  char link[64];
  // Of this thread: /proc/self would show the table of the host's first one.
  *fmt::format_to_n(link, sizeof link - 1, "/proc/thread-self/fd/{}", fd).out = '\0';
  char target[PATH_MAX];
  const long n = sys::readlink(link, target, sizeof target);
  return !sys::failed(n) && std::string_view(target, static_cast<std::size_t>(n)) == path;
}

}  // namespace cube::prefetch
