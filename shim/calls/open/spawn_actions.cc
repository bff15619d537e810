#include "shim/calls/open/spawn_actions.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "cache/base/clock.h"
#include "cache/base/newer_libc.h"
#include "cache/base/process/lifted_fd_limit.h"
#include "shim/calls/name/name_change.h"
#include "shim/calls/open/opened_writers.h"
#include "shim/process/attachment.h"
#include "shim/process/c_result.h"

namespace cube::shim {
namespace {

// An action in the layout of libc.
struct SpawnAction {
  enum Tag : int { close, dup2, open, chdir, fchdir };
  struct Open {
    int fd;
    const char* path;
    int flags;
    mode_t mode;
  };
  struct Dup {
    int fd, to;
  };
  Tag tag;
  union {
    int fd;            // of fchdir
    const char* path;  // of chdir
    Open opened;
    Dup copied;
  };
};

const SpawnAction* actions_of(const posix_spawn_file_actions_t& list) {
  const void* actions = list.__actions;
  return static_cast<const SpawnAction*>(actions);
}

// True if libc lays out a list of known actions as expected. If libc has no actions that change the
// directory, checks only two actions.
bool try_out() {
  posix_spawn_file_actions_t list;
  if (::posix_spawn_file_actions_init(&list) != 0) return false;
  constexpr int k_fd = 77, k_to = 78;
  constexpr mode_t k_mode = 0640;
  const bool can_enter = &posix_spawn_file_actions_addchdir_np != nullptr &&
                         &posix_spawn_file_actions_addfchdir_np != nullptr;
  bool is_made =
      ::posix_spawn_file_actions_addopen(&list, k_fd, "opened", O_WRONLY | O_APPEND, k_mode) == 0 &&
      ::posix_spawn_file_actions_adddup2(&list, k_fd, k_to) == 0;
  if (can_enter) {
    is_made = is_made && ::posix_spawn_file_actions_addchdir_np(&list, "entered") == 0 &&
              ::posix_spawn_file_actions_addfchdir_np(&list, k_fd) == 0;
  }
  const auto is_known = [&] {
    if (list.__used != (can_enter ? 4 : 2)) return false;
    const SpawnAction *const first = actions_of(list), *const second = first + 1,
                             *const third = first + 2, *const fourth = first + 3;
    if (first->tag != SpawnAction::open || first->opened.fd != k_fd ||
        first->opened.flags != (O_WRONLY | O_APPEND) || first->opened.mode != k_mode ||
        std::strcmp(first->opened.path, "opened") != 0 || second->tag != SpawnAction::dup2 ||
        second->copied.fd != k_fd || second->copied.to != k_to)
      return false;
    return !can_enter ||
           (third->tag == SpawnAction::chdir && std::strcmp(third->path, "entered") == 0 &&
            fourth->tag == SpawnAction::fchdir && fourth->fd == k_fd);
  };
  const bool result = is_made && is_known();
  ::posix_spawn_file_actions_destroy(&list);
  return result;
}

enum class Layout : int { untried, known, other };
constinit std::atomic<Layout> g_layout{Layout::untried};

bool is_layout_known() {
  Layout layout = g_layout.load(std::memory_order_relaxed);
  if (layout == Layout::untried) {
    layout = try_out() ? Layout::known : Layout::other;
    g_layout.store(layout, std::memory_order_relaxed);
  }
  return layout == Layout::known;
}

bool may_change(int flags) {
  return (flags & O_ACCMODE) != O_RDONLY || (flags & (O_TRUNC | O_CREAT)) != 0;
}

// Whether an earlier action makes the fd of this fchdir action, so that only the child has the
// directory open.
bool is_set_before(const posix_spawn_file_actions_t& actions, int fchdir) {
  const SpawnAction* const first = actions_of(actions);
  return std::any_of(first, first + fchdir, [fd = first[fchdir].fd](const SpawnAction& action) {
    return (action.tag == SpawnAction::open && action.opened.fd == fd) ||
           (action.tag == SpawnAction::dup2 && action.copied.to == fd);
  });
}

// Whether the path may name an fd of the process that opens it: /proc/self/fd/N, /dev/fd/N,
// /dev/stdout, or a link to one of these. The parent cannot follow such a link, because the child
// has other fds. One matching component is enough, because a path may be relative to any directory.
bool may_name_fd(int dir, const char* path) {
  constexpr std::string_view k_parts[] = {"proc", "fd", "stdin", "stdout", "stderr"};
  std::string_view rest(path);
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('/'), rest.size());
    const std::string_view part = rest.substr(0, end);
    if (std::find(std::begin(k_parts), std::end(k_parts), part) != std::end(k_parts)) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const auto stat = cache::stat_path(dir, path, AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC);
  return stat && (stat->mode & S_IFMT) == S_IFLNK;
}

// Calls `visit(n, dir, opened)` for the n-th action that opens a file to change it. Returns false
// if some of these files cannot be found: the layout of the list is unknown, no fd is left to
// follow an action that changes the directory, the child itself opens that directory, or a path
// names an fd of the child.
template <typename Visit>
bool for_each_change(const posix_spawn_file_actions_t& actions, const Visit& visit) {
  if (!is_layout_known()) return false;
  // Relative paths begin in this directory.
  int directory = AT_FDCWD;
  bool knows_directory = true;
  base::UniqueFd entered;
  std::size_t changes = 0;
  for (int i = 0; i < actions.__used; ++i) {
    const SpawnAction& action = actions_of(actions)[i];
    switch (action.tag) {
      case SpawnAction::chdir: {
        knows_directory = knows_directory || *action.path == '/';
        if (!knows_directory) break;
        const long opened = base::open_path_only(directory, action.path, O_DIRECTORY);
        knows_directory = !base::sys::failed(opened) && !may_name_fd(directory, action.path);
        entered.reset(base::sys::failed(opened) ? -1 : static_cast<int>(opened));
        directory = entered.get();
        break;
      }
      case SpawnAction::fchdir:
        knows_directory = !is_set_before(actions, i);
        directory = action.fd;
        break;
      case SpawnAction::open:
        if (!may_change(action.opened.flags)) break;
        if (!knows_directory && *action.opened.path != '/') return false;
        if (may_name_fd(directory, action.opened.path)) return false;
        visit(changes++, directory, action.opened);
        break;
      default: break;
    }
  }
  return true;
}

bool is_of_no_interest(const posix_spawn_file_actions_t* actions) {
  return actions == nullptr || actions->__used == 0 || !process::owns_table();
}

}  // namespace

NewFiles new_files(const posix_spawn_file_actions_t* actions) {
  NewFiles files;
  auto* const cache = attachment::attached_cache();
  if (is_of_no_interest(actions) || cache == nullptr || cache->changes().is_empty()) return files;
  const KeepErrno keep;
  files.asked_ns = base::boot_ns();
  for_each_change(*actions, [&](std::size_t n, int dir, const SpawnAction::Open& opened) {
    if ((opened.flags & O_CREAT) == 0 || n >= files.made.size()) return;
    const auto stat = cache::stat_path(dir, opened.path, cache::k_ask_server);
    files.made[n] = !stat && stat.error().value == ENOENT;
  });
  return files;
}

void note_spawned_writers(const posix_spawn_file_actions_t* actions, const NewFiles& files) {
  if (is_of_no_interest(actions)) return;
  const KeepErrno keep;
  const bool is_known =
      for_each_change(*actions, [&](std::size_t n, int dir, const SpawnAction::Open& opened) {
        const bool is_new = n < files.made.size() && files.made[n];
        note_foreign_writer(dir, opened.path, is_new ? files.asked_ns : 0);
      });
  if (!is_known) note_any_change();
}

}  // namespace cube::shim
