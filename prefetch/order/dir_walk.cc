#include "prefetch/order/dir_walk.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>
#include <string_view>

#include "cache/base/file_io.h"
#include "cache/base/process/high_fd.h"

namespace cube::prefetch {

namespace sys = base::sys;

namespace {

unsigned char type_of(int directory, const char* name) {
  struct ::stat st {};
  if (sys::failed(sys::fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW))) return DT_UNKNOWN;
  return static_cast<unsigned char>(IFTODT(st.st_mode));
}

}  // namespace

int DirWalk::enter(int parent, const char* name, int flags) {
  const long fd =
      sys::openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK | flags);
  if (sys::failed(fd)) return static_cast<int>(-fd);
  OpenDirectory level;
  level.fd = base::raise_fd(base::UniqueFd(static_cast<int>(fd)));
  level.block.reset(new (std::nothrow) std::byte[k_block]);
  if (level.block == nullptr) return ENOMEM;
  level.path_length = path_.size();
  levels_.push_back(std::move(level));
  return 0;
}

// Returns ENOENT if the kernel must list the directory.
int DirWalk::enter_listing() {
  if (origins_ == nullptr) return ENOENT;
  const auto listing = origins_->of(path_).list(path_);
  if (!listing) return listing.error().value;
  OpenDirectory level;
  level.listing.reset(*listing);
  level.end = level.listing->end();
  level.path_length = path_.size();
  levels_.push_back(std::move(level));
  return 0;
}

int DirWalk::begin(const std::string& root, std::int64_t from) {
  levels_.clear();
  enters_ = false;
  path_ = root;
  position_ = from;
  int error = enter_listing();
  if (error == 0)
    levels_.back().at = std::min(levels_.back().listing->round_up(static_cast<std::uint64_t>(from)),
                                 levels_.back().end);
  if (error != ENOENT) return error;
  error = enter(AT_FDCWD, path_.c_str(), 0);
  if (error != 0 || from == 0) return error;
  const long moved = sys::raw(SYS_lseek, levels_.back().fd.get(), from, SEEK_SET);
  return sys::failed(moved) ? static_cast<int>(-moved) : 0;
}

bool DirWalk::next_file() {
  while (is_walking()) {
    const FoundEntry found = next();
    leave_out();
    if (found.kind == FoundEntry::file || found.kind == FoundEntry::link) return true;
  }
  return false;
}

DirWalk::FoundEntry DirWalk::next() {
  if (std::exchange(enters_, false)) {
    if (levels_.size() == k_most_levels) return {FoundEntry::refused, Refusal::too_long, ELOOP};
    // Opens the name below the fd of its directory, because path_ might name another directory by
    // now.
    const char* const name = path_.c_str() + levels_.back().path_length + 1;
    // Directories that an origin lists itself do not move.
    const int error = levels_.back().listing != nullptr
                          ? enter_listing()
                          : enter(levels_.back().fd.get(), name, O_NOFOLLOW);
    if (error != 0) return {FoundEntry::refused, Refusal::unreadable, error};
  }
  while (!levels_.empty()) {
    OpenDirectory& level = levels_.back();
    path_.resize(level.path_length);
    if (level.at == level.end && level.listing != nullptr) {
      levels_.pop_back();
      continue;
    }
    if (level.at == level.end) {
      const long n = sys::raw(SYS_getdents64, level.fd.get(), sys::arg(level.block.get()), k_block);
      if (n == -EINTR) continue;
      if (n <= 0) {
        levels_.pop_back();
        if (n < 0) return {FoundEntry::refused, Refusal::unreadable, static_cast<int>(-n)};
        continue;
      }
      level.at = 0;
      level.end = static_cast<std::size_t>(n);
    }
    const void* const here = level.listing != nullptr
                                 ? static_cast<void*>(level.listing->at(level.at))
                                 : level.block.get() + level.at;
    const auto* const entry = static_cast<const base::DirectoryEntry*>(here);
    const char* const name = entry->c_str();
    level.at += entry->length;
    if (levels_.size() == 1) position_ = entry->next;
    if (std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0) continue;
    return look_at(level, name, entry->type);
  }
  return {};
}

DirWalk::FoundEntry DirWalk::look_at(OpenDirectory& level, const char* name, unsigned char type) {
  path_ += '/';
  path_ += name;
  if (path_.size() >= PATH_MAX) return {FoundEntry::refused, Refusal::too_long, 0};
  if (type == DT_UNKNOWN) type = type_of(level.fd.get(), name);
  switch (type) {
    case DT_REG: return {FoundEntry::file};
    case DT_LNK: return {FoundEntry::link};
    case DT_DIR: enters_ = true; return {FoundEntry::directory};
    case DT_UNKNOWN: return {FoundEntry::refused, Refusal::missing, 0};
    default: return {FoundEntry::refused, Refusal::not_a_file, 0};
  }
}

}  // namespace cube::prefetch
