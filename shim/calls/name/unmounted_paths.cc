#include "shim/calls/name/unmounted_paths.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "cache/base/log.h"
#include "cache/base/memory/off_stack.h"
#include "shim/calls/directory/unmounted_directory.h"
#include "shim/fd/fd_table.h"
#include "shim/process/c_result.h"

namespace cube::shim::unmounted_paths {
namespace {

using cache::Metadata;

constexpr Metadata::Follow as_follow(bool follows) {
  return follows ? Metadata::Follow::last : Metadata::Follow::nothing;
}

bool is_directory(const cache::FileStat& stat) { return (stat.mode & S_IFMT) == S_IFDIR; }

// Resolves a path with ".." by following the links among our paths.
const Metadata* of_path_that_goes_up(const cache::AllMetadata& all, int dir, const char* path,
                                     CoveredPath& covered) {
  if (!path_filter::spells_up(dir, path, covered)) return nullptr;
  const Metadata* const metadata = all.of(covered.key());
  base::OffStack room;
  if (metadata == nullptr || !room) return nullptr;
  const auto length = metadata->resolve(covered.key(), room.data());
  return length && path_filter::join(metadata->prefix(), {room.data(), *length}, covered) ? metadata
                                                                                          : nullptr;
}

}  // namespace

// Checks a path a second time only if it may name a directory. In a child of vfork, the noted
// working directory is that of the parent.
const Metadata* of_slow(int dir, const char* path, CoveredPath& covered) {
  const cache::AllMetadata* const all = process::origin_metadata();
  if (!process::is_active()) return nullptr;
  if (const Metadata* const metadata = of_path_that_goes_up(*all, dir, path, covered);
      metadata != nullptr)
    return metadata;
  const bool is_file = process::owns_table() && path_filter::covers(dir, path, covered);
  if (!is_file && !path_filter::covers_directory(dir, path, covered)) return nullptr;
  return all->of(covered.key());
}

bool asks_for_directory(std::string_view path) {
  return path.ends_with('/') || path.ends_with("/.") || path.ends_with("/..") || path == "." ||
         path == "..";
}

bool stat(int dir, const char* path, bool no_follow, cache::FileStat& stat) {
  if (process::origin_metadata() == nullptr) return false;
  CoveredPath covered;
  const Metadata* const metadata = of(dir, path, covered);
  if (metadata == nullptr) return false;
  // If the path ends in a slash, it names the target of a final link, and the target must be a
  // directory.
  const bool wants_directory = asks_for_directory(path);
  const auto found = metadata->stat(covered.key(), as_follow(!no_follow || wants_directory));
  if (!found || (wants_directory && !is_directory(*found))) return false;
  stat = *found;
  return true;
}

std::optional<long> access(int dir, const char* path, int mode, bool no_follow) {
  cache::FileStat found;
  if ((mode & ~(R_OK | W_OK | X_OK)) != 0 || !stat(dir, path, no_follow, found))
    return std::nullopt;
  if ((mode & W_OK) != 0) return -EROFS;
  constexpr mode_t k_executable = S_IXUSR | S_IXGRP | S_IXOTH;
  const bool may_execute = (found.mode & k_executable) != 0 || is_directory(found);
  return (mode & X_OK) != 0 && !may_execute ? -EACCES : 0;
}

std::optional<long> readlink(int dir, const char* path, char* to, std::size_t n) {
  if (process::origin_metadata() == nullptr) return std::nullopt;
  CoveredPath covered;
  const Metadata* const metadata = of(dir, path, covered);
  if (metadata == nullptr) return std::nullopt;
  // If the path ends in a slash, it names the target of a final link. That target is not a link.
  if (asks_for_directory(path)) {
    const auto found = metadata->stat(covered.key(), Metadata::Follow::last);
    return found && is_directory(*found) ? std::optional<long>(-EINVAL) : std::nullopt;
  }
  base::OffStack target;
  if (!target) return -ENOMEM;
  const auto length = metadata->read_link(covered.key(), target.data());
  const int error = length ? 0 : length.error().value;
  if (error == EINVAL || (error == 0 && n == 0)) return -EINVAL;
  if (error != 0) return error == EIO ? std::optional<long>(-EIO) : std::nullopt;
  if (is_bad_pointer(to, std::min(n, *length))) return -EFAULT;
  std::memcpy(to, target.data(), std::min(n, *length));
  return static_cast<long>(std::min(n, *length));
}

namespace {

bool real_path_of(const char* path, char (&to)[PATH_MAX], CoveredPath& covered) {
  const Metadata* const metadata = of(AT_FDCWD, path, covered);
  base::OffStack below;
  if (metadata == nullptr || !below) return false;
  if (asks_for_directory(path)) {
    const auto found = metadata->stat(covered.key(), Metadata::Follow::last);
    if (!found || !is_directory(*found)) return false;
  }
  const auto length = metadata->real_path(covered.key(), below.data());
  if (!length || !path_filter::join(metadata->prefix(), {below.data(), *length}, covered))
    return false;
  std::memcpy(to, covered.c_str(), covered.key().size() + 1);
  return true;
}

const Metadata* metadata_of_existing(int dir, const char* path) {
  return base::use_off_stack<CoveredPath>([&](CoveredPath& covered) -> const Metadata* {
    const Metadata* const metadata = of(dir, path, covered);
    return metadata != nullptr && metadata->stat(covered.key(), Metadata::Follow::last) ? metadata
                                                                                        : nullptr;
  });
}

}  // namespace

bool realpath(const char* path, char (&to)[PATH_MAX]) {
  if (process::origin_metadata() == nullptr) return false;
  return base::use_off_stack<CoveredPath>(
      [&](CoveredPath& covered) { return real_path_of(path, to, covered); });
}

bool statfs(int dir, const char* path, struct ::statfs& s) {
  if (process::origin_metadata() == nullptr) return false;
  const Metadata* metadata = nullptr;
  if (path != nullptr) {
    metadata = metadata_of_existing(dir, path);
  } else if (const OpenFileRef directory = unmounted_directory::acquire(dir); directory) {
    metadata = process::origin_metadata()->of(directory->directory->path());
  }
  if (metadata == nullptr) return false;
  // Reports the type FUSE, because some programs treat a file system in user space differently.
  constexpr int k_fuse_magic = 0x65735546;
  const Metadata::Volume volume = metadata->volume();
  s = {};
  s.f_type = k_fuse_magic;
  s.f_bsize = s.f_frsize = cache::k_page;
  s.f_blocks = volume.bytes / cache::k_page;
  s.f_files = volume.files;
  s.f_namelen = NAME_MAX;
  s.f_flags = ST_RDONLY;
  return true;
}

bool statvfs(int dir, const char* path, struct ::statvfs& s) {
  struct ::statfs fs {};
  if (!unmounted_paths::statfs(dir, path, fs)) return false;
  s = {};
  s.f_bsize = s.f_frsize = cache::k_page;
  s.f_blocks = fs.f_blocks;
  s.f_files = fs.f_files;
  s.f_namemax = NAME_MAX;
  s.f_flag = ST_RDONLY;
  return true;
}

bool is_below_served(int dir, const char* path) {
  return process::origin_metadata() != nullptr && process::is_active() &&
         unmounted_directory::is_below(dir, path);
}

namespace {

int error_of_name(const cache::AllMetadata& all, int dir, const char* path, bool no_follow,
                  CoveredPath& covered) {
  if (path_filter::spells_up(dir, path, covered)) {
    base::OffStack below;
    const Metadata* const metadata = all.of(covered.key());
    if (metadata != nullptr && below) {
      const auto resolved = metadata->resolve(covered.key(), below.data());
      if (!resolved) return resolved.error().value;
    }
  }
  const Metadata* const metadata = of(dir, path, covered);
  if (metadata == nullptr) return ENOENT;
  const bool wants_directory = asks_for_directory(path);
  const auto found = metadata->stat(covered.key(), as_follow(!no_follow || wants_directory));
  if (!found) return found.error().value;
  return wants_directory && !is_directory(*found) ? ENOTDIR : ENOENT;
}

}  // namespace

int error_of(int dir, const char* path, bool no_follow) {
  const cache::AllMetadata* const all = process::origin_metadata();
  if (all == nullptr || !process::is_active()) return ENOENT;
  // The path is kept off the stack, because the caller already has a CoveredPath on its stack.
  return base::use_off_stack<CoveredPath>(
      [&](CoveredPath& covered) { return error_of_name(*all, dir, path, no_follow, covered); });
}

int error_of_new(int dir, const char* path) {
  cache::FileStat found;
  if (!is_read_only(dir, path)) return 0;
  return stat(dir, path, /*no_follow=*/true, found) ? EEXIST : EROFS;
}

bool is_read_only(int dir, const char* path) {
  if (process::origin_metadata() == nullptr || path_filter::is_unmapped(path)) return false;
  return base::use_off_stack<CoveredPath>(
      [&](CoveredPath& covered) { return of(dir, path, covered) != nullptr; });
}

bool is_read_only(int fd) {
  if (process::origin_metadata() == nullptr || !process::owns_table()) return false;
  // The kernel refuses changes through an fd that was opened with O_PATH.
  if (const OpenFileRef directory = unmounted_directory::acquire(fd))
    return (directory->flags & O_PATH) == 0;
  const OpenFileRef file = g_fds.acquire(fd);
  return file && !file->record->is_in_kernel();
}

void tell_of_working_directory(int dir, const char* path) {
  cache::FileStat found;
  static constinit std::atomic<bool> told{false};
  if (!stat(dir, path, /*no_follow=*/false, found) ||
      told.exchange(true, std::memory_order_relaxed))
    return;
  const KeepErrno keep;
  base::log(base::LogLevel::warn,
            "{}: a directory that the kernel does not have cannot be the working directory", path);
}

bool copy_path_of_directory(int fd, char (&path)[PATH_MAX]) {
  const OpenFileRef directory = unmounted_directory::acquire(fd);
  if (!directory) return false;
  const std::string_view text = directory->directory->path();
  std::memcpy(path, text.data(), text.size() + 1);
  return true;
}

}  // namespace cube::shim::unmounted_paths
