#include "shim/calls/path_calls.h"

#include "shim/attachment.h"
#include "shim/calls/names.h"
#include "shim/fd_path.h"
#include "shim/real_libc.h"

namespace cube::shim {

namespace sys = base::sys;

namespace {

bool stat_of_cached(int dir, const char* path, bool no_follow, cache::FileStat& stat, bool with_mount) {
  CoveredPath covered;
  // A relative path may cost a getcwd: it is compared only where there is a cache to ask.
  const bool is_absolute = path_filter::is_absolute(path);
  if (is_absolute && !path_filter::covers_served(dir, path, covered)) return false;
  if (!attachment::may_have_cache_to_look_at() || (!is_absolute && !path_filter::covers_served(dir, path, covered))) return false;
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
