#include "prefetch/engine/whole_file.h"

#include <fmt/core.h>

#include <cerrno>

#include "cache/base/unique_fd.h"

namespace cube::prefetch {
namespace sys = base::sys;

void path_of_fd(int fd, FdPath& to) { *fmt::format_to_n(to, sizeof to - 1, "/proc/thread-self/fd/{}", fd).out = '\0'; }

base::Result<int> open_for_fetch(const char* path, cache::LinksOnWay& links) {
  const long opened = cache::open_noting_links(path, k_name_flags, links);
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

}  // namespace cube::prefetch
