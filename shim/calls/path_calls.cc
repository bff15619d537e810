#include "shim/calls/path_calls.h"

#include "shim/attachment.h"
#include "shim/background.h"
#include "shim/calls/names.h"
#include "shim/fd_path.h"
#include "shim/real_libc.h"

namespace cube::shim {

namespace sys = base::sys;

namespace {

// A look that memory does not answer. Many in one directory are worth gathering.
Known note_miss(cache::FileCache& cache, std::string_view key) {
  if (cache.names().note_miss(key)) background::gather_names_near(cache, key);
  return Known::unknown;
}

Known stat_of_cached(int dir, const char* path, const StatWish& wish, cache::FileStat& stat, bool& may_be_read) {
  CoveredPath covered;
  // A relative path may cost a getcwd: it is compared only where there is a cache to ask.
  const bool is_absolute = path_filter::is_absolute(path);
  if (is_absolute && !path_filter::covers_served(dir, path, covered)) return Known::unknown;
  if (!attachment::may_have_cache_to_look_at() || (!is_absolute && !path_filter::covers_served(dir, path, covered)))
    return Known::unknown;
  auto* const cache = attachment::cache_to_look_at();
  if (cache == nullptr) return Known::unknown;
  const cache::Pin pin = cache->find({covered.key(), covered.c_str(), O_RDONLY});
  if (!pin || (wish.no_follow && !pin->is_physical()) || (wish.with_mount && !pin->has_one_view())) {
    const Known known = cache->names().stat(covered.key(), wish.no_follow, wish.with_mount, stat);
    if (known == Known::present && cache->names().is_first_in_directory(covered.key())) background::follow_names(covered.key());
    return known == Known::unknown ? note_miss(*cache, covered.key()) : known;
  }
  stat = pin->stat;
  may_be_read = true;
  cache->stats().count(base::Counter::stat_hits);
  return Known::present;
}

Known stat_of_name(int dir, const char* path, bool no_follow, cache::FileStat& stat, bool& may_be_read) {
  may_be_read = names::stat(dir, path, no_follow, stat);
  return may_be_read ? Known::present : Known::unknown;
}

}  // namespace

Known stat_from_record(int dir, const char* path, const StatWish& wish, cache::FileStat& stat, bool* may_be_read) {
  bool ignored = false;
  bool& readable = may_be_read != nullptr ? *may_be_read : ignored;
  if (!process::is_active()) return Known::unknown;
  // A prefix of our own names is covered by none.
  if (path_filter::passes_by(path)) return stat_of_name(dir, path, wish.no_follow, stat, readable);
  materialize_named(path, dir);
  const Known known = real::stat_is_anothers() ? Known::unknown : stat_of_cached(dir, path, wish, stat, readable);
  return known == Known::unknown ? stat_of_name(dir, path, wish.no_follow, stat, readable) : known;
}

Known access_from_record(int dir, const char* path, int mode) {
  if ((mode & ~R_OK) != 0) return Known::unknown;
  cache::FileStat stat;
  bool may_be_read = false;
  const Known known = stat_from_record(dir, path, {}, stat, &may_be_read);
  if (known != Known::present) return known;
  // That it could be opened for reading is known of files that were. access(2) asks for the real ids.
  if (mode != F_OK && !may_be_read) return Known::unknown;
  const bool is_real = sys::raw(SYS_getuid) == sys::raw(SYS_geteuid) && sys::raw(SYS_getgid) == sys::raw(SYS_getegid);
  return is_real ? Known::present : Known::unknown;
}

}  // namespace cube::shim
