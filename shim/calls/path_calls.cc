#include "shim/calls/path_calls.h"

#include <sys/vfs.h>

#include "shim/attachment.h"
#include "shim/calls/names.h"
#include "shim/fd_table.h"
#include "shim/materialize.h"
#include "shim/real_libc.h"

namespace cube::shim {

namespace sys = base::sys;

void materialize_named(const char* path, int dir) {
  int fd = path_filter::named_fd(path);
  // A bare number that is served here, below what may be /proc/self/fd.
  if (const int bare = fd < 0 ? path_filter::bare_number(path) : -1; g_fds.kind(bare) == RowKind::served) {
    struct ::statfs fs {};
    constexpr decltype(fs.f_type) k_proc = 0x9fa0;
    const int below = dir == AT_FDCWD ? static_cast<int>(sys::open(".", O_PATH | O_CLOEXEC)) : dir;
    if (!sys::failed(sys::raw(SYS_fstatfs, below, sys::arg(&fs))) && fs.f_type == k_proc) fd = bare;
    if (below != dir) sys::close(below);
  }
  if (fd >= 0 && process::owns_table()) materialize(fd, "/proc/self/fd");
}

namespace {

bool stat_of_cached(int dir, const char* path, bool no_follow, cache::FileStat& stat, bool with_mount) {
  CoveredPath covered;
  // A relative path may cost a getcwd: it is compared only where there is a cache to ask.
  const bool is_absolute = path_filter::is_absolute(path);
  if (is_absolute && !is_covered(dir, path, covered)) return false;
  if (!attachment::may_have_cache_to_look_at() || (!is_absolute && !is_covered(dir, path, covered))) return false;
  auto* const cache = attachment::cache_to_look_at();
  if (cache == nullptr) return false;
  const cache::Pin pin = cache->find({covered.key(), covered.c_str(), O_RDONLY});
  if (!pin || (no_follow && !pin->is_physical()) || (with_mount && !pin->has_one_view())) return false;
  stat = pin->stat;
  cache->stats().count(base::Counter::stat_hits);
  return true;
}

}  // namespace

bool stat_from_record(int dir, const char* path, bool no_follow, cache::FileStat& stat, bool with_mount) {
  if (!process::is_active()) return false;
  // A prefix of our own names is covered by none.
  if (path_filter::passes_by(path)) return names::stat(dir, path, no_follow, stat);
  materialize_named(path, dir);
  if (!real::stat_is_anothers() && stat_of_cached(dir, path, no_follow, stat, with_mount)) return true;
  return names::stat(dir, path, no_follow, stat);
}

bool access_from_record(int dir, const char* path, int mode) {
  // That it could be opened for reading is known; nothing else is. access(2) asks for the real ids.
  cache::FileStat stat;
  if ((mode & ~R_OK) != 0 || !stat_from_record(dir, path, false, stat)) return false;
  return sys::raw(SYS_getuid) == sys::raw(SYS_geteuid) && sys::raw(SYS_getgid) == sys::raw(SYS_getegid);
}

}  // namespace cube::shim
