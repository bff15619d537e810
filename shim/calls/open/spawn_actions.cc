#include "shim/calls/open/spawn_actions.h"

#include <cstring>

#include "cache/base/newer_libc.h"
#include "cache/base/process/lifted_fd_limit.h"
#include "shim/calls/open/opened_writers.h"
#include "shim/process/attachment.h"
#include "shim/process/c_result.h"

namespace cube::shim {
namespace {

namespace sys = base::sys;

// An action in the layout of libc.
struct SpawnAction {
  enum Tag : int { close, dup2, open, chdir, fchdir };
  struct Open {
    int fd;
    const char* path;
    int flags;
    mode_t mode;
  };
  Tag tag;
  union {
    int fd;            // of fchdir
    const char* path;  // of chdir
    Open opened;
  };
};

const SpawnAction* actions_of(const posix_spawn_file_actions_t& list) {
  const void* actions = list.__actions;
  return static_cast<const SpawnAction*>(actions);
}

// True if libc lays out a list of known actions as expected. If libc has no actions that change the
// directory, the list holds only the first action.
bool try_out() {
  posix_spawn_file_actions_t list;
  if (::posix_spawn_file_actions_init(&list) != 0) return false;
  constexpr int k_fd = 77;
  constexpr mode_t k_mode = 0640;
  const bool can_enter = &posix_spawn_file_actions_addchdir_np != nullptr &&
                         &posix_spawn_file_actions_addfchdir_np != nullptr;
  bool is_made =
      ::posix_spawn_file_actions_addopen(&list, k_fd, "opened", O_WRONLY | O_APPEND, k_mode) == 0;
  if (can_enter) {
    is_made = is_made && ::posix_spawn_file_actions_addchdir_np(&list, "entered") == 0 &&
              ::posix_spawn_file_actions_addfchdir_np(&list, k_fd) == 0;
  }
  const auto is_known = [&] {
    if (list.__used != (can_enter ? 3 : 1)) return false;
    const SpawnAction *const first = actions_of(list), *const second = first + 1,
                             *const third = first + 2;
    if (first->tag != SpawnAction::open || first->opened.fd != k_fd ||
        first->opened.flags != (O_WRONLY | O_APPEND) || first->opened.mode != k_mode ||
        std::strcmp(first->opened.path, "opened") != 0)
      return false;
    return !can_enter ||
           (second->tag == SpawnAction::chdir && std::strcmp(second->path, "entered") == 0 &&
            third->tag == SpawnAction::fchdir && third->fd == k_fd);
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

// The layout of the list is unknown, so the child may change any file.
void note_any_change() {
  if (auto* const cache = attachment::attached_cache(); cache != nullptr)
    cache->changes().tree_changed("/");
}

}  // namespace

void note_spawned_writers(const posix_spawn_file_actions_t* actions) {
  if (actions == nullptr || actions->__used == 0 || !process::owns_table()) return;
  const KeepErrno keep;
  if (!is_layout_known()) return note_any_change();
  // The directory in which relative paths begin. The fd of an fchdir action is assumed to be an fd
  // of this process.
  int directory = AT_FDCWD;
  base::UniqueFd entered;
  for (int i = 0; i < actions->__used; ++i) {
    const SpawnAction& action = actions_of(*actions)[i];
    switch (action.tag) {
      case SpawnAction::chdir: {
        const long opened = base::open_path_only(directory, action.path, O_DIRECTORY);
        if (base::is_exhausted(opened)) return note_any_change();
        entered.reset(static_cast<int>(opened));
        directory = entered.get();
        break;
      }
      case SpawnAction::fchdir: directory = action.fd; break;
      case SpawnAction::open:
        if (may_change(action.opened.flags)) note_foreign_writer(directory, action.opened.path);
        break;
      default: break;
    }
  }
}

}  // namespace cube::shim
