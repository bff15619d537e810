#include "shim/calls/name/kernel_answer.h"

#include <cerrno>
#include <cstring>

#include "cache/base/memory/off_stack.h"
#include "shim/calls/name/unmounted_paths.h"
#include "shim/process/attachment.h"
#include "shim/process/c_result.h"

namespace cube::shim {
namespace {

using cache::Told;
using Wants = PathCall::Wants;

enum class Lesson : std::uint8_t {
  nothing,
  name,
  way,
  name_and_way,
  new_name,
  negative_entries_in_doubt
};
struct Answer {
  Lesson lesson = Lesson::nothing;
  Told told;
};

bool asks_for_directory(const PathCall& call) {
  return call.wants == Wants::directory || unmounted_paths::asks_for_directory(call.path);
}

bool may_be_made(const PathCall& call) {
  return call.wants == Wants::new_name || call.wants == Wants::any_name;
}

std::uint8_t kinds_wanted(const PathCall& call) {
  if (asks_for_directory(call)) return Told::k_directory;
  if (call.wants == Wants::link) return Told::k_link;
  if (call.wants == Wants::file) return Told::k_other | (call.no_follow ? Told::k_link : 0);
  return Told::k_any;
}

Answer meaning_of(const PathCall& call, int error) {
  const bool no_follow =
      (call.no_follow || call.wants == Wants::new_name) && !asks_for_directory(call);
  Answer there{Lesson::name, {.no_follow = no_follow}};
  const Answer in_doubt =
      may_be_made(call) ? Answer() : Answer{Lesson::negative_entries_in_doubt, {}};
  switch (error) {
    case 0:
      // A call that has made a name proves that everything else in memory about this path is
      // outdated. NameChange has dropped the directory's listing by the inode. But under this path,
      // memory may have the listing of an earlier directory.
      if (call.wants == Wants::new_name) there.lesson = Lesson::new_name;
      there.told.kinds = kinds_wanted(call);
      return there;
    case ENOENT:
      if (may_be_made(call)) return {Lesson::way, {}};
      there.told.kinds = 0;
      there.told.is_in_doubt = call.has_other_reasons;
      return there;
    case ENOTDIR:
      if (may_be_made(call)) return {Lesson::way, {}};
      there.lesson = Lesson::name_and_way;
      there.told.kinds = Told::k_link | Told::k_other;
      there.told.is_there = false;
      return there;
    case EISDIR: there.told.kinds = Told::k_directory; return there;
    case EEXIST:
      if (may_be_made(call)) return there;
      [[fallthrough]];
    case ENOTEMPTY:
      there.told.kinds = Told::k_directory;
      there.told.has_entries = true;
      return there;
    case ELOOP:
      if (!no_follow) return {};
      there.told.kinds = Told::k_link;
      return there;
    case EINVAL:
      // The kernel may have refused the arguments before it looked up the path.
      if (call.wants != Wants::link) return in_doubt;
      there.told.kinds = Told::k_directory | Told::k_other;
      return there;
    case EBUSY:
    case ENODATA:
    case ENOTSUP:
    case ECONNREFUSED:
    case ENXIO:
    case EOVERFLOW:
    case ENOEXEC:
    case ERANGE:
    case ETXTBSY: return there;
    case EACCES:
    case EPERM:
    case EROFS: return in_doubt;
    default: return {};
  }
}

// Whether a prefix covers the path. Sets `covered` to the key by which the cache knows the path.
bool covers(const PathCall& call, CoveredPath& covered) {
  if (!process::owns_table() && !path_filter::is_absolute(call.path)) return false;
  if (call.is_change && path_filter::covers_changed(call.dir, call.path, covered)) return true;
  return path_filter::covers(call.dir, call.path, covered) ||
         path_filter::covers_directory(call.dir, call.path, covered);
}

// Like covers(), but by the path under which the directory is cached, even if the program uses
// another one.
bool covers_by_inode(cache::FileCache& cache, const PathCall& call, CoveredPath& covered) {
  if (!cache.metadata().are_any()) return false;
  std::string_view text(call.path, strnlen(call.path, PATH_MAX));
  while (text.size() > 1 && text.ends_with('/')) text.remove_suffix(1);
  const std::size_t slash = text.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? text : text.substr(slash + 1);
  const std::string_view above = slash == std::string_view::npos ? "."
                                 : slash == 0                    ? "/"
                                                                 : text.substr(0, slash);
  base::OffStack room;
  if (!room || text.size() == PATH_MAX || name.empty() || name == "." || name == "..") return false;
  std::memcpy(room.data(), above.data(), above.size());
  room.data()[above.size()] = '\0';
  const auto stat = cache::stat_path(call.dir, room.data(), AT_STATX_DONT_SYNC);
  const std::size_t length = stat ? cache.corrections().path_of_listed(*stat, room.data()) : 0;
  return length != 0 && path_filter::join({room.data(), length}, name, covered);
}

// A forked child of an attached process attaches for any call, because the kernel's answer may
// contradict the region of the parent.
bool may_attach(const PathCall& call) {
  return call.is_change || attachment::is_child_of_attached();
}

bool may_matter(const PathCall& call) {
  if (!process::is_active()) return false;
  const bool is_attached = attachment::attached_cache() != nullptr;
  return (is_attached && call.is_change) ||
         ((is_attached || may_attach(call)) && !path_filter::passes_by(call.path));
}

template <typename Learn>
void with_key(const PathCall& call, bool may_ask, Learn&& learn) {
  if (!may_matter(call) || !path_filter::is_readable_pointer(call.path)) return;
  const KeepErrno keep;
  const auto use = [&](CoveredPath& covered) {
    const bool is_covered = covers(call, covered);
    auto* const cache = is_covered && may_attach(call) && process::owns_table()
                            ? attachment::existing_cache()
                            : attachment::attached_cache();
    if (cache == nullptr || cache->corrections().has_nothing()) return;
    // The kernel does not know the paths of packs and buckets.
    const auto* const unmounted = is_covered ? process::origin_metadata() : nullptr;
    if (unmounted != nullptr && unmounted->of(covered.key()) != nullptr) return;
    if (is_covered) learn(cache->corrections(), covered.key());
    if (!may_ask) return;
    // The path may lead through links, so the directory may be cached under another path.
    base::use_off_stack<CoveredPath>([&](CoveredPath& by_inode) {
      if (!covers_by_inode(*cache, call, by_inode) ||
          (is_covered && by_inode.key() == covered.key()))
        return;
      learn(cache->corrections(), by_inode.key());
    });
  };
  // Two kinds of calls use memory off the stack: a call that may attach, and a change, which
  // already has a path on its stack. Other calls use the stack, because a sanitizer in the program
  // would report data races on memory off the stack.
  const bool may_attach_here =
      attachment::attached_cache() == nullptr && attachment::is_child_of_attached();
  call.is_change || may_attach_here ? base::use_off_stack<CoveredPath>(use)
                                    : base::use_on_stack<CoveredPath>(use);
}

template <typename Stat>
void learn_stat(const PathCall& call, const Stat& kernels) {
  with_key(call, /*may_ask=*/false, [&](cache::Corrections& corrections, std::string_view key) {
    corrections.learn_stat(key, cache::FileStat::from(kernels),
                           call.no_follow && !unmounted_paths::asks_for_directory(call.path));
  });
}

}  // namespace

namespace kernel_answer {

void learn(const PathCall& call, int error) {
  // If the kernel could not read the path, this code cannot read it, either.
  if (!path_filter::is_readable_pointer(call.path) || error == EFAULT) return;
  const Answer answer = meaning_of(call, error);
  if (answer.lesson == Lesson::nothing) return;
  // If a call has made a name, NameChange has already asked the kernel for the directory.
  const bool may_ask = call.is_change && (error != 0 || !may_be_made(call));
  with_key(call, may_ask, [&](cache::Corrections& corrections, std::string_view key) {
    switch (answer.lesson) {
      case Lesson::nothing: break;
      case Lesson::name: return corrections.learn(key, answer.told);
      case Lesson::new_name:
        corrections.learn(key, {.kinds = 0, .no_follow = true});
        return corrections.learn(key, answer.told);
      case Lesson::name_and_way: corrections.learn(key, answer.told); [[fallthrough]];
      case Lesson::way:
        // If all parents of the path are directories, ENOTDIR concerns the last component, which
        // thus exists.
        if (!corrections.learn_way_is_broken(key) && answer.lesson == Lesson::name_and_way)
          corrections.learn(key, {.no_follow = true});
        return;
      case Lesson::negative_entries_in_doubt: return corrections.doubt_negative_entries(key);
    }
  });
}

}  // namespace kernel_answer

long told(long result, const PathCall& call) {
  kernel_answer::learn(call, result == -1 ? errno : 0);
  return unmounted_paths::with_error(result, call.dir, call.path, call.no_follow);
}

int told_stat(int result, int dir, const char* path, bool no_follow, const struct ::stat* st) {
  const PathCall call{.dir = dir, .path = path, .no_follow = no_follow};
  if (result != 0 || st == nullptr) return told(result, call);
  learn_stat(call, *st);
  return result;
}

int told_statx(int result, int dir, const char* path, bool no_follow, const struct ::statx* x) {
  const PathCall call{.dir = dir, .path = path, .no_follow = no_follow};
  if (result != 0 || x == nullptr || (x->stx_mask & STATX_BASIC_STATS) != STATX_BASIC_STATS)
    return told(result, call);
  learn_stat(call, *x);
  return result;
}

long told_link(long length, int dir, const char* path, const char* to, std::size_t room) {
  const PathCall call{.dir = dir, .path = path, .wants = PathCall::Wants::link, .no_follow = true};
  if (length <= 0 || static_cast<std::size_t>(length) >= room) return told(length, call);
  with_key(call, /*may_ask=*/false, [&](cache::Corrections& corrections, std::string_view key) {
    corrections.learn_target(key, {to, static_cast<std::size_t>(length)});
  });
  return length;
}

}  // namespace cube::shim
