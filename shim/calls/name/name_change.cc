#include "shim/calls/name/name_change.h"

#include <linux/fs.h>

#include <cstring>

#include "cache/base/memory/off_stack.h"
#include "cache/base/process/lifted_fd_limit.h"
#include "cache/base/process/mount_table.h"
#include "shim/calls/directory/mount_stream.h"
#include "shim/calls/name/kernel_answer.h"
#include "shim/fd/fd_table.h"
#include "shim/fd/materialize.h"
#include "shim/path/fd_path.h"
#include "shim/path/path_of_fd.h"
#include "shim/process/attachment.h"
#include "shim/process/c_result.h"

namespace cube::shim {

namespace sys = base::sys;

namespace {

// A change of the owner or group may take away the right to search, unless everyone has it. A
// reader may even be root, but without the capabilities that override modes.
bool has_lost(const Passage& before, const cache::FileStat& after) {
  constexpr std::uint32_t k_search = S_IXUSR | S_IXGRP | S_IXOTH;
  const bool is_given_away = before.user != after.user || before.group != after.group;
  return before.is_lost || (before.mode & ~after.mode & k_search) != 0 ||
         (is_given_away && (after.mode & k_search) != k_search);
}

// Whether the process may have changed its root directory (chroot). Its paths, even those in /proc,
// then mean other files than the paths of other processes.
bool may_have_own_root() {
  constexpr std::uint64_t k_mount_root = STATX_ATTR_MOUNT_ROOT;  // since Linux 5.8
  struct ::statx root {};
  const long result = sys::statx(AT_FDCWD, "/", AT_STATX_DONT_SYNC, STATX_INO, &root);
  const bool is_told = !sys::failed(result) && (root.stx_attributes_mask & k_mount_root) != 0;
  return is_told ? (root.stx_attributes & k_mount_root) == 0 : !base::has_mount_at_root();
}

// Returns the cache to which changes are reported. A child of vfork cannot attach, so it uses its
// parent's cache.
cache::FileCache* cache_of_changes() {
  return process::owns_table() ? attachment::existing_cache() : attachment::attached_cache();
}

}  // namespace

NameChange::NameChange(int dir, const char* path, Of of)
    : of_(of), name_(of == Of::name ? path : nullptr), dir_(dir) {
  if (!process::tells()) return;
  materialize_named(path, dir);
  // The subject is the file of the fd.
  by_fd_ =
      dir >= 0 && (path == nullptr || (path_filter::is_readable_pointer(path) && *path == '\0'));
  if (by_fd_) materialize_to_change(dir, "fchownat");
  auto* const cache = attachment::existing_cache();
  was_empty_ = cache == nullptr || cache->changes().is_empty();
  if (was_empty_) return;
  // Finds the directory now: the path may lead through the name that changes, and may not exist
  // afterwards.
  if (name_ != nullptr) directory_ = directory_of(dir, path);
  covered_ = process::owns_table() && path_filter::covers_changed(dir, path, path_);
  // A link may lead from an uncovered path to a covered file, or from a covered path to another
  // file.
  if (of == Of::file) followed_ = path;
  if (!covered_ && of != Of::file && path_filter::is_prefix_or_above(dir, path, prefix_)) {
    materialize_below(prefix_);
    mount_stream::hold_all();
  }
  // Materialize the file while the name still leads to it.
  if (covered_) materialize_below(path_.key());
  if (of == Of::file || !prefix_.empty()) return;
  const KeepErrno keep;
  const auto stat = stat_before(dir, path, *cache);
  if (!stat) return;
  before_ = *stat;
  materialize_other_names(*stat, "rename");
  const auto type = stat->mode & S_IFMT;
  is_tree_ = type == S_IFDIR || type == S_IFLNK;
  if (!is_tree_) return;
  if (of != Of::file_or_link) mount_stream::hold_all();
  // This path may lead through links, and the files of the tree may be cached under their real
  // paths. Records under paths with links are dropped by any change of a tree.
  knows_tree_ = take_real_path(dir, path);
  if (knows_tree_ && !covered_) materialize_below(path_.key());
}

// Returns the stat before the change, or an error if the change cannot matter.
base::Result<cache::FileStat> NameChange::stat_before(int dir, const char* path,
                                                      cache::FileCache& cache) {
  const int follow = of_ == Of::mount_point ? 0 : AT_SYMLINK_NOFOLLOW;
  const auto stat = cache::stat_path(dir, path, follow);
  if (!stat) return stat;
  if (!covered_ && !cache.changes().knows_device(stat->device())) {
    unknown_device_ = stat->device();
    if (!is_on_a_way(*stat, dir, path, cache)) return base::fail(EXDEV);
  }
  // Another node may have added or removed hard links, which the mount's cached attributes do not
  // show.
  const bool is_to_be_asked = of_ == Of::name && stat->is_regular() &&
                              (stat->links > 1 || cache.parts().ram.has_inode(*stat));
  return is_to_be_asked ? cache::stat_path(dir, path, follow | cache::k_ask_server) : stat;
}

// Whether paths to cached files may lead through this link or directory, although no file of its
// device is cached. The links on the way to a file are not recorded.
bool NameChange::is_on_a_way(const cache::FileStat& stat, int dir, const char* path,
                             cache::FileCache& cache) {
  const auto type = stat.mode & S_IFMT;
  if (type == S_IFLNK) return cache.changes().knows_paths_with_links();
  std::string_view prefix;
  return type == S_IFDIR && (!take_real_path(dir, path) ||
                             path_filter::is_prefix_or_above(AT_FDCWD, path_.c_str(), prefix));
}

// Determines the real path while the name still leads to it. Returns false if that fails, for
// example because no fd is free.
bool NameChange::take_real_path(int dir, const char* path) {
  const int follow = of_ == Of::mount_point ? 0 : O_NOFOLLOW;
  const long fd = base::open_path_only(dir, path, follow);
  if (sys::failed(fd)) return false;
  base::OffStack real;
  const long n = real ? read_path_of_fd(static_cast<int>(fd), real.data()) : -ENOMEM;
  sys::close(static_cast<int>(fd));
  return !sys::failed(n) && !may_have_own_root() &&
         path_filter::join({real.data(), static_cast<std::size_t>(n)}, {}, path_);
}

// A change of the attributes of an uncovered directory matters only if it removes the right to
// reach the files below.
bool NameChange::changes_tree(const Passage& before) const {
  if (of_ != Of::file_or_link || covered_ || !knows_tree_) return true;
  const auto after = cache::stat_path(AT_FDCWD, path_.c_str(), AT_SYMLINK_NOFOLLOW);
  return before.is_known && (!after || has_lost(before, *after));
}

// Returns the directory that holds the name, or nothing if no listing is kept or the directory
// cannot be found.
std::optional<cache::FileStat> NameChange::directory_of(int dir, const char* path) {
  if (!process::tells() || !path_filter::is_readable_pointer(path)) return std::nullopt;
  const KeepErrno keep;
  auto* const cache = cache_of_changes();
  if (cache == nullptr || !cache->metadata().are_any()) return std::nullopt;
  std::string_view text(path, strnlen(path, PATH_MAX));
  while (text.size() > 1 && text.ends_with('/')) text.remove_suffix(1);
  const std::size_t slash = text.rfind('/');
  base::OffStack above;
  if (text.size() == PATH_MAX) return std::nullopt;
  if (!above) {
    cache->changes().all_changed();
    return std::nullopt;
  }
  const std::string_view directory = slash == std::string_view::npos ? "."
                                     : slash == 0                    ? "/"
                                                                     : text.substr(0, slash);
  std::memcpy(above.data(), directory.data(), directory.size());
  above.data()[directory.size()] = '\0';
  // Only the inode and the device are needed. The kernel knows both without asking a server.
  const auto stat = cache::stat_path(dir, above.data(), AT_STATX_DONT_SYNC);
  return stat ? std::optional(*stat) : std::nullopt;
}

// Drops the listing by the inode of the directory, because it may be cached under several paths.
void NameChange::drop_listing(const cache::FileStat& directory) {
  const KeepErrno keep;
  auto* const cache = cache_of_changes();
  if (cache != nullptr && cache->changes().knows_device(directory.device()))
    cache->changes().entries_changed(directory);
}

void NameChange::note_entry(int dir, const char* path) {
  if (const auto directory = directory_of(dir, path); directory) drop_listing(*directory);
}

// The path may end in a link to a file in another directory. The path of the fd shows that
// directory.
void NameChange::note_entry_of(int fd, int dir, const char* path) {
  if (!process::tells()) return;
  const KeepErrno keep;
  const auto* const cache = cache_of_changes();
  if (cache == nullptr || !cache->metadata().are_any()) return;
  base::OffStack real;
  const long n = real ? read_path_of_fd(fd, real.data()) : -ENOMEM;
  if (sys::failed(n) || n >= PATH_MAX || real.data()[0] != '/') return note_entry(dir, path);
  real.data()[n] = '\0';
  note_entry(AT_FDCWD, real.data());
}

void NameChange::commit(const Passage& before) {
  path_filter::forget_found_directories();
  if (was_empty_) return commit_of_unlooked();
  auto* const cache = attachment::attached_cache();
  if (cache == nullptr) return;
  const KeepErrno keep;
  // A move changes the path from which the mount was moved, too, and a mount can propagate to other
  // places.
  if (of_ == Of::mount_point) return cache->changes().tree_changed("/");
  // True if the first file of the device was cached during the call.
  if (unknown_device_ && cache->changes().knows_device(*unknown_device_))
    cache->changes().tree_changed("/");
  if (directory_) drop_listing(*directory_);
  if (name_ != nullptr && !directory_) note_entry(dir_, name_);
  if (by_fd_) note_changed(dir_, before);
  if (!prefix_.empty()) cache->changes().tree_changed(prefix_);
  if (followed_ != nullptr) {
    const long fd = base::open_path_only(dir_, followed_);
    if (!sys::failed(fd)) {
      note_changed(static_cast<int>(fd), before);
      sys::close(static_cast<int>(fd));
    } else if (base::is_exhausted(fd)) {
      // A stat needs no fd, and its inode identifies the records of a file.
      const auto stat = cache::stat_path(dir_, followed_, AT_STATX_DONT_SYNC);
      if (stat && stat->is_regular())
        cache->changes().bytes_changed({}, *stat);
      else
        cache->changes().all_changed();
    }
  }
  // If another node has removed a directory of this name, memory may still have metadata below the
  // name.
  if (is_new_tree_ && !is_tree_) {
    knows_tree_ = take_real_path(dir_, name_);
    is_tree_ = covered_ || knows_tree_;
  }
  if (!covered_ && !before_ && !is_tree_) return;
  const bool has_key = covered_ || knows_tree_;
  const std::string_view key = has_key ? path_.key() : std::string_view();
  if (of_ == Of::name) {
    const bool has_other_names = before_ && before_->links > 1;
    cache->changes().name_changed(key, before_ ? &*before_ : nullptr, is_moved_ || has_other_names);
  } else if (before_) {
    cache->changes().doubt_identity(key, &*before_);
    cache->changes().bytes_changed(key, *before_);
  } else {
    cache->changes().content_changed(key, nullptr);
  }
  // A directory was empty when it was removed.
  const bool was_removed = of_ == Of::name && !is_moved_ && !is_new_tree_ && before_ &&
                           (before_->mode & S_IFMT) == S_IFDIR;
  // If the tree is unknown, drops everything.
  if (is_tree_ && !was_removed && changes_tree(before))
    cache->changes().tree_changed(knows_tree_ ? path_.key() : "/");
}

// Nothing was cached when the call began. But the first fetch may have begun during the call, and
// may have found the file that the name led to before.
void NameChange::commit_of_unlooked() const {
  const KeepErrno keep;
  auto* const cache = attachment::existing_cache();
  if (cache != nullptr && !cache->changes().is_empty()) cache->changes().tree_changed("/");
}

long told_of_change(long result, int dir, const char* path, NameChange::Of of) {
  // A removed name, like a new name, proves that its parent directories exist and that nothing lies
  // below it.
  const bool is_gone = result == 0 && of == NameChange::Of::name;
  const bool no_follow = of == NameChange::Of::name || of == NameChange::Of::file_or_link;
  const auto wants = is_gone ? PathCall::Wants::new_name : PathCall::Wants::name;
  kernel_answer::learn(
      {.dir = dir, .path = path, .wants = wants, .no_follow = no_follow, .is_change = true},
      result == 0 ? 0 : errno);
  const bool may_be_other = result == 0 && !is_gone && of != NameChange::Of::mount_point;
  if (!may_be_other || attachment::attached_cache() == nullptr) return result;
  // Success does not show the type of the file, so ask the kernel, which has just looked up the
  // file.
  const KeepErrno keep;
  struct ::statx now {};
  const int flags = AT_STATX_DONT_SYNC | (no_follow ? AT_SYMLINK_NOFOLLOW : 0);
  if (!sys::failed(sys::statx(dir, path, flags, cache::FileStat::k_request, &now)))
    told_statx(0, dir, path, no_follow, &now);
  return result;
}

long told_of_new_name(long result, int dir, const char* path) {
  if (result == 0) NameChange::note_entry(dir, path);
  kernel_answer::learn(
      {.dir = dir, .path = path, .wants = PathCall::Wants::new_name, .is_change = true},
      result == 0 ? 0 : errno);
  return result;
}

long told_of_new_file(long result, int dir, const char* path, std::uint64_t before_ns) {
  const bool may_be_file = result == 0 && before_ns != 0 && process::tells();
  auto* const cache = may_be_file ? cache_of_changes() : nullptr;
  if (cache != nullptr && !cache->changes().is_empty()) {
    const KeepErrno keep;
    const auto stat = cache::stat_path(dir, path, AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC);
    if (stat && stat->is_regular() && cache->changes().knows_device(stat->device()))
      cache->changes().inode_reused(*stat, before_ns);
  }
  return told_of_new_name(result, dir, path);
}

void note_any_change() {
  const KeepErrno keep;
  if (auto* const cache = cache_of_changes(); cache != nullptr) cache->changes().tree_changed("/");
}

void told_of_source(long result, int dir, const char* path, bool no_follow) {
  // All other errors, such as EEXIST and ENOTEMPTY, concern the target of the rename.
  const bool is_of_this =
      result == 0 || errno == ENOENT || errno == ENOTDIR || errno == EACCES || errno == EPERM;
  if (!is_of_this) return;
  kernel_answer::learn({.dir = dir,
                        .path = path,
                        .no_follow = no_follow,
                        .has_other_reasons = true,
                        .is_change = true},
                       result == 0 ? 0 : errno);
}

void told_of_target(long result, int dir, const char* path, unsigned flags) {
  using Target = PathCall::Wants;
  if (result == 0) return;
  const Target wants = (flags & RENAME_NOREPLACE) != 0  ? Target::new_name
                       : (flags & RENAME_EXCHANGE) != 0 ? Target::name
                                                        : Target::any_name;
  kernel_answer::learn({.dir = dir,
                        .path = path,
                        .wants = wants,
                        .no_follow = true,
                        .has_other_reasons = true,
                        .is_change = true},
                       errno);
}

Passage passage_of(int dir, const char* path) {
  if (!process::tells() || !process::owns_table()) return {};
  auto* const cache = attachment::existing_cache();
  if (cache == nullptr || cache->changes().is_empty()) return {};
  const KeepErrno keep;
  const auto stat = cache::stat_path(dir, path, AT_EMPTY_PATH | AT_STATX_DONT_SYNC);
  if (!stat || (stat->mode & S_IFMT) != S_IFDIR) return {};
  return {.is_known = true, .mode = stat->mode, .user = stat->user, .group = stat->group};
}

Passage passage_by_attribute(int dir, const char* path, const char* name) {
  if (!process::tells()) return {};
  const bool is_readable =
      path_filter::is_readable_pointer(name) && !path_filter::is_unmapped(name);
  const bool is_list = is_readable && std::strncmp(name, "system.", 7) == 0;
  Passage passage = is_list ? passage_of(dir, path) : Passage();
  passage.is_lost = true;
  return passage;
}

void note_changed(int fd, const Passage& before) {
  if (!process::tells()) return;
  // Attaches if necessary, because a forked child may change files before it has opened a file.
  auto* const cache = cache_of_changes();
  if (cache == nullptr || cache->changes().is_empty()) return;
  const KeepErrno keep;
  const auto stat = cache::stat_fd(fd);
  if (!stat) return;
  char path[PATH_MAX];
  const bool is_known = cache->changes().knows_device(stat->device());
  if (stat->is_regular() && is_known) cache->changes().bytes_changed(path_of_fd(fd, path), *stat);
  // The listing of a directory holds its stat.
  if (!stat->is_regular() && is_known) cache->changes().content_changed({}, &*stat);
  if (!before.is_known || (stat->mode & S_IFMT) != S_IFDIR || !has_lost(before, *stat)) return;
  // The directory may be on another device, and the mount of a prefix may lie below it.
  const std::string_view directory = path_of_fd(fd, path);
  std::string_view prefix;
  if (directory.size() < sizeof path) path[directory.size()] = '\0';
  const bool has_own_root = may_have_own_root();
  if (is_known || has_own_root || path_filter::is_prefix_or_above(AT_FDCWD, path, prefix))
    cache->changes().tree_changed(has_own_root ? "/" : directory);
}

}  // namespace cube::shim
