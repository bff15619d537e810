#include "shim/path/path_filter.h"

#include <cstring>

#include "cache/base/memory/can_read.h"
#include "cache/base/memory/off_stack.h"
#include "cache/base/path.h"
#include "shim/fd/fd_table.h"
#include "shim/fd/placeholder.h"
#include "shim/path/directory_paths.h"
#include "shim/process/process.h"

namespace cube::shim {

namespace sys = base::sys;

namespace path_filter {
namespace {

// Returns the text of the path, or an empty view if the kernel would refuse the path.
std::string_view text_of(const char* path) {
  if (!is_readable_pointer(path)) return {};
  const std::size_t length = strnlen(path, PATH_MAX);
  return length == PATH_MAX ? std::string_view() : std::string_view(path, length);
}

// The working directory when it was last read. This note serves only to decide quickly that a
// relative path is not covered. If a path seems covered, the kernel is asked again. Two buffers
// alternate, so that a reader never sees a half-written buffer.
struct WorkingDirectory {
  std::size_t length = 0;
  char text[PATH_MAX];
};
constinit WorkingDirectory g_directories[2]{};
constinit std::atomic<const WorkingDirectory*> g_directory{nullptr};
constinit std::atomic<unsigned> g_turn{0};

template <typename Is>
bool any_prefix(Is&& is) {
  for (const auto& prefix : process::config().prefixes) {
    if (is(prefix)) return true;
  }
  return false;
}

bool covered_by_prefix(std::string_view path) {
  return any_prefix([&](std::string_view prefix) { return base::is_below(path, prefix); });
}

// True if the path could be under a prefix after "." and "//" and ".." are resolved. A result of
// true may be wrong; false is always right. The loop is written so that the compiler vectorizes it,
// because every open outside the prefixes executes this code.
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("O3")))
#endif
bool has_odd_parts(std::string_view path) {
  const char* const p = path.data();
  unsigned char odd = 0;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    odd |= static_cast<unsigned char>((p[i] == '/') & ((p[i + 1] == '/') | (p[i + 1] == '.')));
  }
  return odd != 0;
}

bool has_dot_dot(std::string_view path) {
  for (std::size_t at = path.find(".."); at != std::string_view::npos;
       at = path.find("..", at + 1)) {
    if ((at == 0 || path[at - 1] == '/') && (at + 2 == path.size() || path[at + 2] == '/'))
      return true;
  }
  return false;
}

const WorkingDirectory* last_seen_directory() {
  const WorkingDirectory* seen = g_directory.load(std::memory_order_acquire);
  if (seen != nullptr) return seen;
  WorkingDirectory& next = g_directories[g_turn.fetch_add(1, std::memory_order_relaxed) % 2];
  next.length = working_directory(next.text).size();
  if (next.length == 0) return nullptr;
  g_directory.store(&next, std::memory_order_release);
  return &next;
}

bool shares_with_prefix(std::string_view directory) {
  return any_prefix([&](std::string_view prefix) {
    return base::is_at_or_below(directory, prefix) || base::is_at_or_below(prefix, directory);
  });
}

// True if the text "directory/relative", which has no "..", may be covered.
bool may_cover(std::string_view directory, std::string_view relative) {
  for (const auto& prefix : process::config().prefixes) {
    if (prefix == "/" || directory == prefix || base::is_below(directory, prefix)) return true;
    if (directory != "/" && !base::is_below(prefix, directory)) continue;
    // The directory lies above the prefix. So a covered path begins with the part between directory
    // and prefix, or contains "." or "//".
    const std::string_view rest =
        std::string_view(prefix).substr(directory == "/" ? 1 : directory.size() + 1);
    if (relative.starts_with(rest) || relative.starts_with("./") || has_odd_parts(relative))
      return true;
  }
  return false;
}

// A path off the stack. A thread may have as little as 16 KB of stack, and callers already have
// paths on it.
struct PathRoom {
  char text[PATH_MAX];
};
template <typename Use>
auto with_room(Use&& use) {
  return base::use_off_stack<PathRoom>([&](PathRoom& room) { return use(room.text); });
}

// Calls use(directory) with the path of the directory in which relative paths begin. Returns false
// if this path is unknown, or if use() returned false.
template <typename Use>
bool with_directory(int dir, Care care, Use&& use) {
  return with_room([&](auto& room) {
    const std::string_view directory = directory_of(dir, room, care);
    return !directory.empty() && use(directory);
  });
}

// The kernel follows the path up to its last "..". The rest is appended as text.
bool resolve_dot_dot(int dir, std::string_view path, CoveredPath& covered, Care care,
                     char (&head)[PATH_MAX]) {
  std::size_t cut = 0;
  for (std::size_t at = path.find(".."); at != std::string_view::npos;
       at = path.find("..", at + 1)) {
    if ((at == 0 || path[at - 1] == '/') && (at + 2 == path.size() || path[at + 2] == '/'))
      cut = at + 2;
  }
  if (cut >= path.size()) return false;  // a path that ends in ".." is a directory
  if (cut >= sizeof head) return false;
  std::memcpy(head, path.data(), cut);
  head[cut] = '\0';
  const long fd = sys::openat(dir, head, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (sys::failed(fd)) return false;
  const std::string_view resolved = directory_of(static_cast<int>(fd), head, care);
  sys::close(static_cast<int>(fd));
  // A signal handler or another thread may have parked a higher fd.
  if (process::owns_table()) placeholder::fd_was_freed(static_cast<int>(fd));
  if (resolved.empty()) return false;
  PathBuilder builder(covered);
  if (resolved != "/" && !builder.append(resolved, false)) return false;
  return builder.append(path.substr(cut), true) && covered_by_prefix(covered.key());
}
bool resolve_dot_dot(int dir, std::string_view path, CoveredPath& covered, Care care) {
  return with_room([&](auto& head) { return resolve_dot_dot(dir, path, covered, care, head); });
}

bool looks_covered(std::string_view directory, std::string_view path, CoveredPath& covered) {
  PathBuilder builder(covered);
  return builder.fold(directory) && builder.fold(path) && covered_by_prefix(covered.key());
}

bool looks_covered_from_here(std::string_view path, CoveredPath& covered) {
  return with_room(
      [&](auto& directory) { return looks_covered(working_directory(directory), path, covered); });
}

// Asks the kernel about a path with ".." only if the text seems covered.
bool covers_dot_dot(int dir, std::string_view directory, std::string_view path,
                    CoveredPath& covered, Care care) {
  return looks_covered(directory, path, covered) && resolve_dot_dot(dir, path, covered, care);
}

bool covers_absolute(std::string_view path, CoveredPath& covered, Care care) {
  if (!has_odd_parts(path)) {
    // The common case: the path needs no change.
    PathBuilder builder(covered);
    return covered_by_prefix(path) && builder.copy(path);
  }
  if (has_dot_dot(path)) return covers_dot_dot(AT_FDCWD, {}, path, covered, care);
  PathBuilder builder(covered);
  return builder.append(path, true) && covered_by_prefix(covered.key());
}

bool join_covered(std::string_view directory, std::string_view relative, CoveredPath& covered) {
  PathBuilder builder(covered);
  if (directory != "/" && !builder.append(directory, false)) return false;
  return builder.append(relative, true) && covered_by_prefix(covered.key());
}

bool covers_from(int dir, std::string_view path, CoveredPath& covered, Care care) {
  return with_directory(dir, care,
                        [&](std::string_view base) { return join_covered(base, path, covered); });
}

// True if the path seems to lead under no prefix, according to the last known working directory or
// the row of `dir`. Does not ask the kernel.
bool stays_outside(int dir, std::string_view path) {
  if (dir == AT_FDCWD) {
    const WorkingDirectory* const seen = last_seen_directory();
    return seen == nullptr || !may_cover({seen->text, seen->length}, path);
  }
  const RowKind kind = g_fds.kind(dir);
  return kind != RowKind::directory && kind != RowKind::unmounted_directory;
}

bool covers_relative(int dir, std::string_view path, CoveredPath& covered, Care care) {
  if (dir == AT_FDCWD && care == Care::thorough) {
    if (has_dot_dot(path))
      return looks_covered_from_here(path, covered) && resolve_dot_dot(dir, path, covered, care);
  } else if (dir == AT_FDCWD) {
    const WorkingDirectory* const seen = last_seen_directory();
    if (seen == nullptr) return false;
    const bool up = path.starts_with("..") || path.find("/..") != std::string_view::npos;
    if (!up && !may_cover({seen->text, seen->length}, path)) return false;
    if (up && has_dot_dot(path))
      return covers_dot_dot(dir, {seen->text, seen->length}, path, covered, care);
  } else {
    if (care == Care::quick && stays_outside(dir, path)) return false;
    // The kernel cannot follow ".." from a served directory, because the fd refers to an empty
    // directory.
    if (has_dot_dot(path) && g_fds.kind(dir) == RowKind::unmounted_directory) return false;
    if (has_dot_dot(path)) return resolve_dot_dot(dir, path, covered, care);
  }
  return covers_from(dir, path, covered, care);
}

}  // namespace

bool is_unmapped(const char* path) {
  if (!process::is_active() || !is_readable_pointer(path)) return false;
  constexpr std::size_t k_piece = 4096;
  for (std::size_t done = 0; done < PATH_MAX;) {
    const std::uintptr_t address = address_of(path + done);
    if (!base::can_read_around(address)) return true;
    const std::size_t n = std::min<std::size_t>(k_piece - address % k_piece, PATH_MAX - done);
    if (std::memchr(path + done, 0, n) != nullptr) return false;
    done += n;
  }
  return false;
}

bool covers(int dir, const char* path, CoveredPath& covered, Care care) {
  const std::string_view text = text_of(path);
  if (text.empty()) return false;
  return text.front() == '/' ? covers_absolute(text, covered, care)
                             : covers_relative(dir, text, covered, care);
}

bool covers_changed(int dir, const char* path, CoveredPath& covered) {
  std::string_view text = text_of(path);
  if (text.empty()) return false;
  while (text.size() > 1 && (text.ends_with('/') || text.ends_with("/."))) text.remove_suffix(1);
  return text.front() == '/' ? covers_absolute(text, covered, Care::thorough)
                             : covers_relative(dir, text, covered, Care::thorough);
}

bool covers_directory(int dir, const char* path, CoveredPath& covered) {
  const std::string_view text = text_of(path);
  if (text.empty() || has_dot_dot(text)) return false;
  PathBuilder builder(covered);
  if (*path != '/' &&
      (stays_outside(dir, text) || !with_directory(dir, Care::quick, [&](std::string_view base) {
         return base == "/" || builder.append(base, false);
       })))
    return false;
  if (!builder.append(text, false)) return false;
  return any_prefix(
      [&](std::string_view prefix) { return base::is_at_or_below(covered.key(), prefix); });
}

bool spells_up(int dir, const char* path, CoveredPath& spelled) {
  const std::string_view text = text_of(path);
  if (text.empty() || !has_dot_dot(text)) return false;
  PathBuilder builder(spelled);
  if (*path != '/' &&
      !with_directory(dir, Care::quick, [&](std::string_view base) { return builder.spell(base); }))
    return false;
  return builder.spell(text);
}

bool join(std::string_view prefix, std::string_view below, CoveredPath& joined) {
  PathBuilder builder(joined);
  return builder.spell(prefix) && builder.spell(below);
}

namespace {

std::string_view prefix_spelled(std::string_view text) {
  while (text.size() > 1 && text.back() == '/') text.remove_suffix(1);
  for (const auto& prefix : process::config().prefixes) {
    if (text == prefix) return prefix;
  }
  return {};
}

// True if an absolute path names a prefix or a directory above a prefix.
bool names_prefix_or_above(std::string_view text) {
  while (text.size() > 1 && text.back() == '/') text.remove_suffix(1);
  // For most opens outside the prefixes, one comparison is enough.
  return any_prefix([&](std::string_view prefix) {
    return text.size() <= prefix.size() && base::is_at_or_below(prefix, text);
  });
}

}  // namespace

std::string_view prefix_named(const char* path) {
  return is_absolute(path) ? prefix_spelled(path) : std::string_view();
}

bool covers_found(std::string_view path) { return covered_by_prefix(path); }

bool passes_by(const char* path) {
  if (!is_readable_pointer(path) || *path != '/') return false;
  const std::string_view text(path);
  // The prefix of a pack or bucket is one of our paths, although it is not covered.
  if (process::origin_metadata() != nullptr && process::origin_metadata()->of(text) != nullptr)
    return false;
  return !text.starts_with("/proc/") && !text.starts_with("/dev/") && !covered_by_prefix(text) &&
         !has_odd_parts(text) && !names_prefix_or_above(text);
}

namespace {

bool find_prefix(int dir, const char* path, bool or_below, std::string_view& prefix,
                 CoveredPath& whole) {
  PathBuilder builder(whole);
  if (*path != '/' && !with_directory(dir, Care::thorough,
                                      [&](std::string_view base) { return builder.fold(base); }))
    return false;
  if (!builder.fold(path)) return false;
  for (const auto& candidate : process::config().prefixes) {
    if (candidate != whole.key() && !(or_below && base::is_below(candidate, whole.key()))) continue;
    prefix = candidate;
    return true;
  }
  return false;
}

bool find_prefix(int dir, const char* path, bool or_below, std::string_view& prefix) {
  if (text_of(path).empty()) return false;
  return base::use_off_stack<CoveredPath>(
      [&](CoveredPath& whole) { return find_prefix(dir, path, or_below, prefix, whole); });
}

}  // namespace

bool is_prefix(int dir, const char* path, std::string_view& prefix) {
  return find_prefix(dir, path, false, prefix);
}

bool is_prefix_or_above(int dir, const char* path, std::string_view& prefix) {
  return find_prefix(dir, path, true, prefix);
}

bool may_lead_under_prefix(int dir, const char* path) {
  if (!is_readable_pointer(path)) return false;
  if (*path != '/') {
    if (dir != AT_FDCWD) return g_fds.kind(dir) == RowKind::directory;
    const WorkingDirectory* const seen = last_seen_directory();
    return seen != nullptr && shares_with_prefix({seen->text, seen->length});
  }
  std::string_view text(path);
  while (text.size() > 1 && text.back() == '/') text.remove_suffix(1);
  return shares_with_prefix(text) || has_odd_parts(text);
}

namespace {

bool may_name_from_here(std::string_view here, const char* path) {
  if (!shares_with_prefix(here)) return false;
  return base::use_off_stack<CoveredPath>([&](CoveredPath& whole) {
    PathBuilder builder(whole);
    if (!builder.fold(here) || !builder.fold(text_of(path))) return false;
    return any_prefix(
        [&](std::string_view prefix) { return base::is_at_or_below(prefix, whole.key()); });
  });
}

}  // namespace

bool may_name_prefix_or_above(int dir, const char* path) {
  if (!is_readable_pointer(path)) return false;
  if (*path == '/') {
    std::string_view text = text_of(path);
    while (text.ends_with("/.") || text.ends_with("/./")) text.remove_suffix(1);
    return names_prefix_or_above(text);
  }
  if (dir != AT_FDCWD) return g_fds.kind(dir) == RowKind::directory;
  const WorkingDirectory* const seen = last_seen_directory();
  return seen != nullptr && may_name_from_here({seen->text, seen->length}, path);
}

void forget_working_directory() { g_directory.store(nullptr, std::memory_order_release); }

}  // namespace path_filter
}  // namespace cube::shim
