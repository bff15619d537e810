#include "prefetch/engine/whole_file.h"

#include <cerrno>

#include "cache/base/process/proc_fd_name.h"
#include "cache/base/unique_fd.h"

namespace cube::prefetch {
namespace sys = base::sys;

base::Result<int> open_for_fetch(const char* path, cache::LinksOnWay& links, cache::FileStat& named,
                                 std::uint64_t most) {
  const long opened = cache::open_noting_links(path, k_name_flags, links);
  if (sys::failed(opened)) return base::fail(static_cast<int>(-opened));
  base::UniqueFd name(static_cast<int>(opened));
  if (links == cache::LinksOnWay::magic) return base::fail(ELOOP);
  const auto stat = cache::stat_path(name.get(), "", k_name_stat_flags);
  if (!stat) return base::fail(stat.error().value);
  named = *stat;
  if (!named.is_regular() || named.size > most) return name.release();
  const base::ProcFdName again(name.get(), base::ProcFdName::Table::thread);
  long fd = sys::open(again.c_str(), k_open_flags);
  // Without /proc, opens by path, although the path might name another file by now.
  if (fd == -ENOENT || fd == -ENOTDIR) fd = sys::open(path, k_open_flags);
  if (sys::failed(fd)) return base::fail(static_cast<int>(-fd));
  return static_cast<int>(fd);
}

}  // namespace cube::prefetch
