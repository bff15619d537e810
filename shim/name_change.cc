#include "shim/name_change.h"

#include <cstring>

#include "shim/c_result.h"
#include "shim/fd_table.h"
#include "shim/materialize.h"
#include "shim/path_calls.h"
#include "shim/path_of_fd.h"

namespace cube::shim {

namespace sys = base::sys;

NameChange::NameChange(int dir, const char* path, bool follows_links) : dir_(dir) {
  if (!process::is_active()) return;
  materialize_named(path, dir);
  // The file of the fd itself.
  by_fd_ = dir >= 0 && (path == nullptr || *path == '\0');
  if (by_fd_) materialize(dir, "fchownat");
  auto* const cache = process::existing_cache();
  if (cache == nullptr || cache->changes().is_empty()) return;
  covered_ = process::owns_table() && path_filter::covers_changed(dir, path, path_);
  // By another name it may be what is covered, and a link under a covered name is not what it leads to.
  if (follows_links) followed_ = path;
  if (!covered_) {
    if (!follows_links && path_filter::is_prefix_or_above(dir, path, prefix_)) materialize_below(prefix_);
    return;
  }
  // While the name still leads to the file.
  materialize_below(path_.key());
  if (follows_links) return;
  const KeepErrno keep;
  if (const auto stat = cache::stat_path(dir, path, AT_SYMLINK_NOFOLLOW)) before_ = *stat;
  if (before_) materialize_other_names(*before_);
}

void NameChange::commit(const Passage& before) {
  path_filter::forget_found_directories();
  auto* const cache = process::attached_cache();
  if (cache == nullptr) return;
  const KeepErrno keep;
  if (by_fd_) note_changed(dir_, before);
  if (!prefix_.empty()) cache->changes().tree_changed(prefix_);
  if (followed_ != nullptr) {
    const long fd = sys::openat(dir_, followed_, O_PATH | O_CLOEXEC);
    if (!sys::failed(fd)) note_changed(static_cast<int>(fd), before);
    sys::close(static_cast<int>(fd));
  }
  if (!covered_) return;
  cache->changes().content_changed(path_.key(), before_ ? &*before_ : nullptr);
  const auto type = before_ ? before_->mode & S_IFMT : 0U;
  if (type == S_IFDIR || type == S_IFLNK) cache->changes().tree_changed(path_.key());
}

Passage passage_of(int dir, const char* path) {
  if (!process::is_active() || !process::owns_table()) return {};
  auto* const cache = process::existing_cache();
  if (cache == nullptr || cache->changes().is_empty()) return {};
  const KeepErrno keep;
  const auto stat = cache::stat_path(dir, path, AT_EMPTY_PATH | AT_STATX_DONT_SYNC);
  if (!stat || (stat->mode & S_IFMT) != S_IFDIR) return {};
  return {.is_known = true, .mode = stat->mode, .user = stat->user, .group = stat->group};
}

Passage passage_by_attribute(int dir, const char* path, const char* name) {
  const bool is_list = reinterpret_cast<std::uintptr_t>(name) >= 4096 && std::strncmp(name, "system.", 7) == 0;
  Passage passage = is_list ? passage_of(dir, path) : Passage();
  passage.is_lost = true;
  return passage;
}

namespace {

// The owner is of no matter to root, whom nobody refuses: who unpacks a tree gives away one directory after the other.
bool has_lost(const Passage& before, const cache::FileStat& after) {
  constexpr std::uint32_t k_search = S_IXUSR | S_IXGRP | S_IXOTH;
  const bool is_given_away = before.user != after.user || before.group != after.group;
  return before.is_lost || (before.mode & ~after.mode & k_search) != 0 || (is_given_away && sys::raw(SYS_geteuid) != 0);
}

}  // namespace

void note_changed(int fd, const Passage& before) {
  if (!process::is_active() || !process::owns_table()) return;
  // A forked child that has opened nothing yet changes files too.
  auto* const cache = process::existing_cache();
  if (cache == nullptr || cache->changes().is_empty()) return;
  const KeepErrno keep;
  const auto stat = cache::stat_fd(fd);
  if (!stat) return;
  char path[PATH_MAX];
  const bool is_known = cache->changes().knows_device(stat->device());
  if (stat->is_regular() && is_known) cache->changes().content_changed(path_of_fd(fd, path), &*stat);
  if (!before.is_known || (stat->mode & S_IFMT) != S_IFDIR || !has_lost(before, *stat)) return;
  // Mounts that prefixes lie on may be below a directory of another device.
  const std::string_view directory = path_of_fd(fd, path);
  std::string_view prefix;
  if (directory.size() < sizeof path) path[directory.size()] = '\0';
  if (is_known || path_filter::is_prefix_or_above(AT_FDCWD, path, prefix)) cache->changes().tree_changed(directory);
}

}  // namespace cube::shim
