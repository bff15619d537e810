#include "prefetch/whole_file.h"

#include <fmt/core.h>
#include <linux/openat2.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <string_view>

#include "cache/base/unique_fd.h"

namespace cube::prefetch {
namespace {

namespace sys = base::sys;

constinit std::atomic<bool> g_has_openat2{true};

}  // namespace

void path_of_fd(int fd, FdPath& to) { *fmt::format_to_n(to, sizeof to - 1, "/proc/thread-self/fd/{}", fd).out = '\0'; }

namespace {

long open_name(const char* path, Links& links) {
  links = Links::unknown;
  long fd = -ENOSYS;
  if (g_has_openat2.load(std::memory_order_relaxed)) {
    struct ::open_how how {};
    how.flags = k_name_flags;
    how.resolve = RESOLVE_NO_SYMLINKS;
    fd = sys::raw(SYS_openat2, AT_FDCWD, sys::arg(path), sys::arg(&how), sizeof how);
    if (fd == -ENOSYS || fd == -EPERM) g_has_openat2.store(false, std::memory_order_relaxed);
    links = fd == -ELOOP ? Links::some : Links::none;
  }
  if (fd != -ELOOP && fd != -ENOSYS && fd != -EPERM) return fd;
  if (fd != -ELOOP) links = Links::unknown;
  return sys::open(path, k_name_flags);
}

}  // namespace

base::Result<int> open_for_fetch(const char* path, Links& links) {
  const long opened = open_name(path, links);
  if (sys::failed(opened)) return base::fail(static_cast<int>(-opened));
  base::UniqueFd name(static_cast<int>(opened));
  const auto stat = cache::stat_path(name.get(), "", k_name_stat_flags);
  if (!stat) return base::fail(stat.error().value);
  if (!stat->is_regular()) return name.release();
  FdPath again;
  path_of_fd(name.get(), again);
  long fd = sys::open(again, k_open_flags);
  // Without /proc by its name, as whatever that is by now.
  if (fd == -ENOENT || fd == -ENOTDIR) fd = sys::open(path, k_open_flags);
  if (sys::failed(fd)) return base::fail(static_cast<int>(-fd));
  return static_cast<int>(fd);
}

bool has_no_links(int fd, const char* path) {
  FdPath link;
  path_of_fd(fd, link);
  char target[PATH_MAX];
  const long n = sys::readlink(link, target, sizeof target);
  return !sys::failed(n) && std::string_view(target, static_cast<std::size_t>(n)) == path;
}

}  // namespace cube::prefetch
