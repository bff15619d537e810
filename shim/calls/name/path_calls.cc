#include "shim/calls/name/path_calls.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cache/base/memory/off_stack.h"
#include "cache/base/process/view.h"
#include "cache/bucket/copy_stat.h"
#include "shim/calls/name/unmounted_paths.h"
#include "shim/path/fd_path.h"
#include "shim/process/attachment.h"
#include "shim/process/real_libc.h"
#include "shim/threads/own_threads.h"

namespace cube::shim {

namespace {

// Like attachment::cache_to_look_at, but also offers to lead if there is something to prefetch.
cache::FileCache* cache_to_look_at() {
  cache::FileCache* const cache = attachment::cache_to_look_at();
  if (cache != nullptr) own_threads::offer(*cache);
  return cache;
}

// Notes a query that memory could not answer. After many such misses in a directory, has the stats
// of its entries gathered.
Known note_miss(cache::FileCache& cache, std::string_view key) {
  if (cache.metadata().note_miss(key)) own_threads::gather_metadata_near(cache, key);
  return Known::unknown;
}

// Answers the stat of the prefix itself, which has no cached parent directory.
Known stat_of_prefix(const char* path, const StatWish& wish, cache::FileStat& stat) {
  const std::string_view prefix = path_filter::prefix_named(path);
  if (prefix.empty() || !process::owns_table() || !attachment::may_have_cache_to_look_at())
    return Known::unknown;
  auto* const cache = cache_to_look_at();
  if (cache == nullptr) return Known::unknown;
  const Known known = cache->metadata().stat(prefix, wish.no_follow, wish.with_mount, stat);
  if (known != Known::unknown) return known;
  // The key by which scouts recognize the whole prefix: the prefix and a slash.
  base::OffStack room;
  if (!room || prefix.size() + 1 > PATH_MAX) return Known::unknown;
  std::memcpy(room.data(), prefix.data(), prefix.size());
  room.data()[prefix.size()] = '/';
  return note_miss(*cache, {room.data(), prefix.size() + 1});
}

// Returns the cache to ask about a covered path, or null if the kernel must answer. A relative path
// may cost a getcwd, so it is compared with the prefixes only if there is a cache.
cache::FileCache* cache_of(int dir, const char* path, CoveredPath& covered) {
  const bool is_absolute = path_filter::is_absolute(path);
  if (is_absolute && !path_filter::covers_served(dir, path, covered)) return nullptr;
  if (!attachment::may_have_cache_to_look_at() ||
      (!is_absolute && !path_filter::covers_served(dir, path, covered)))
    return nullptr;
  return cache_to_look_at();
}

Known stat_of_key(cache::FileCache& cache, const CoveredPath& covered, const StatWish& wish,
                  cache::FileStat& stat, bool& may_be_read) {
  const cache::Pin pin = cache.find({covered.key(), covered.c_str(), O_RDONLY});
  if (!pin || (wish.no_follow && !pin->is_physical()) || (wish.with_mount && !pin->has_one_view()))
    return cache.metadata().stat(covered.key(), wish.no_follow, wish.with_mount, stat);
  stat = pin->stat;
  may_be_read = true;
  cache.stats().count(base::Counter::stat_hits);
  return Known::present;
}

// Call this after memory has answered for a path.
void note_answer(cache::FileCache& cache, std::string_view key) {
  if (cache.metadata().is_first_in_directory(key)) own_threads::follow_metadata(key);
}

// Replaces the path by the target of its final symbolic link, as far as links are cached. If the
// target is under no prefix, makes the path empty. Returns unknown if the path does not end in a
// link, or if one of the links is not cached.
Known go_by_links(cache::FileCache& cache, CoveredPath& covered) {
  base::OffStack room;
  if (!room) return Known::unknown;
  cache::MountMetadata::FoundPath real{.text = room.data()};
  const Known known =
      cache.metadata().real_path(covered.key(), cache::MountMetadata::Leads::by_link, real);
  if (real.length == 0 || real.view() == covered.key()) return known;
  note_answer(cache, covered.key());
  PathBuilder builder(covered);
  const bool is_ours = path_filter::covers_found(real.view()) && builder.copy(real.view());
  return is_ours || known == Known::absent ? known : Known::unknown;
}

// True if a negative answer for a relative path was derived from a directory above the parent of
// the path, and so is not reliable. The directory in which the path begins exists, because the
// program has it open. But the directory may have been renamed, and a cached listing of its parent
// may lack the new name.
bool is_negative_from_above(const cache::FileCache& cache, const char* path,
                            const CoveredPath& covered) {
  return !path_filter::is_absolute(path) && !cache.metadata().has_listing_beside(covered.key());
}

Known stat_of_cached(int dir, const char* path, const StatWish& wish, cache::FileStat& stat,
                     bool& may_be_read) {
  CoveredPath covered;
  auto* const cache = cache_of(dir, path, covered);
  if (cache == nullptr) return stat_of_prefix(path, wish, stat);
  Known known = stat_of_key(*cache, covered, wish, stat, may_be_read);
  if (known == Known::absent && is_negative_from_above(*cache, path, covered))
    return Known::unknown;
  if (known == Known::unknown && !wish.no_follow) {
    known = go_by_links(*cache, covered);
    if (known == Known::present)
      known = stat_of_key(*cache, covered, {true, wish.with_mount}, stat, may_be_read);
  }
  if (known == Known::unknown)
    return covered.key().empty() ? known : note_miss(*cache, covered.key());
  if (known == Known::present && !may_be_read) note_answer(*cache, covered.key());
  return known;
}

Known stat_of_name(int dir, const char* path, bool no_follow, cache::FileStat& stat,
                   bool& may_be_read) {
  const auto is_copy_of_object = [&] {
    return !no_follow && process::has_buckets() && path_filter::is_readable_pointer(path) &&
           cache::stat_of_copy(path, stat);
  };
  may_be_read = unmounted_paths::stat(dir, path, no_follow, stat) || is_copy_of_object();
  return may_be_read ? Known::present : Known::unknown;
}

// Returns the cache to ask about links, and sets `covered`. Returns null if the kernel must answer.
cache::FileCache* cache_of_links(int dir, const char* path, CoveredPath& covered) {
  if (!process::is_active() || process::origin_metadata() != nullptr ||
      path_filter::passes_by(path) || real::stat_is_anothers())
    return nullptr;
  auto* const cache = cache_of(dir, path, covered);
  return cache != nullptr && cache->metadata().is_on() ? cache : nullptr;
}

}  // namespace

std::optional<long> readlink_from_record(int dir, const char* path, char* to, std::size_t n) {
  if (n == 0 || n > INT_MAX || is_bad_pointer(to, n)) return std::nullopt;
  CoveredPath covered;
  auto* const cache = cache_of_links(dir, path, covered);
  if (cache == nullptr) return std::nullopt;
  base::OffStack room;
  cache::MountMetadata::FoundPath target{.text = room.data()};
  const Known known = room ? cache->metadata().read_link(covered.key(), target) : Known::unknown;
  if (known == Known::unknown) {
    note_miss(*cache, covered.key());
    return std::nullopt;
  }
  if (known == Known::absent && is_negative_from_above(*cache, path, covered)) return std::nullopt;
  if (known == Known::absent) return -ENOENT;
  if (target.length == 0) return -EINVAL;
  const std::size_t length = std::min(n, target.length);
  std::memcpy(to, target.text, length);
  return static_cast<long>(length);
}

bool realpath_from_record(const char* path, char (&to)[PATH_MAX]) {
  return base::use_off_stack<CoveredPath>([&](CoveredPath& covered) {
    auto* const cache = cache_of_links(AT_FDCWD, path, covered);
    if (cache == nullptr) return false;
    cache::MountMetadata::FoundPath real{.text = to};
    const Known known =
        cache->metadata().real_path(covered.key(), cache::MountMetadata::Leads::anywhere, real);
    if (known == Known::present) {
      to[real.length] = '\0';
      return true;
    }
    if (known == Known::unknown && path_filter::covers_found(real.view()))
      note_miss(*cache, real.view());
    return false;
  });
}

Known stat_from_record(int dir, const char* path, const StatWish& wish, cache::FileStat& stat,
                       bool* may_be_read) {
  bool ignored = false;
  bool& readable = may_be_read != nullptr ? *may_be_read : ignored;
  if (!process::is_active()) return Known::unknown;
  // The prefix of a pack or bucket is one of our paths, but is not covered.
  if (path_filter::passes_by(path)) return stat_of_name(dir, path, wish.no_follow, stat, readable);
  materialize_named(path, dir);
  const Known known =
      real::stat_is_anothers() ? Known::unknown : stat_of_cached(dir, path, wish, stat, readable);
  return known == Known::unknown ? stat_of_name(dir, path, wish.no_follow, stat, readable) : known;
}

Known access_from_record(int dir, const char* path, int mode) {
  if ((mode & ~R_OK) != 0) {
    if (process::is_active()) materialize_named(path, dir);
    return Known::unknown;
  }
  cache::FileStat stat;
  bool may_be_read = false;
  const Known known = stat_from_record(dir, path, {}, stat, &may_be_read);
  if (known == Known::unknown) return known;
  // Only an earlier open for reading proves that a file can be read.
  if (known == Known::present && mode != F_OK && !may_be_read) return Known::unknown;
  return base::access_has_own_rights() ? known : Known::unknown;
}

}  // namespace cube::shim
