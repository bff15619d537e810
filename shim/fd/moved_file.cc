#include "shim/fd/moved_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cache/base/file_io.h"
#include "cache/base/memory/scratch.h"
#include "cache/base/path.h"
#include "cache/base/unique_fd.h"
#include "cache/record/file_stat.h"
#include "cache/region/last_changes.h"
#include "cache/region/posix_locks.h"
#include "shim/process/attachment.h"

namespace cube::shim::moved_file {
namespace {

namespace sys = base::sys;

// Bounds of the search. The program waits for the search, which may be slow on a mount.
constexpr unsigned k_most_pages = 32, k_most_tries = 128;
constexpr std::size_t k_page = 32 << 10;

class Search {
 public:
  Search(const cache::Record& record, int flags)
      : record_(record), flags_(flags | O_CLOEXEC | O_NONBLOCK) {}

  int run() {
    entries_ = scratch_.reserve(2 * k_page + PATH_MAX);
    if (entries_ == nullptr) return -ENOMEM;
    name_ = reinterpret_cast<char*>(entries_ + k_page);
    const std::string_view path = record_.path();
    for (std::string_view at = path; at.size() > 1 && goes_on();) {
      const std::string_view directory = base::split_path(at).directory;
      look_in(directory, path.substr(at.size()));
      at = directory;
    }
    return result_;
  }

 private:
  bool goes_on() const {
    return result_ == -ENOENT && pages_ < k_most_pages && tries_ < k_most_tries;
  }

  // Tries the entries that have the file's inode, and `rest` below each entry that is a directory.
  // `rest` is the end of the path, with a leading slash, or empty.
  void look_in(std::string_view directory, std::string_view rest) {
    const auto fd = base::open_fd(joined(directory, ""), O_RDONLY | O_DIRECTORY);
    if (!fd) {
      const int error = fd.error().value;
      if (error == EMFILE || error == ENFILE) result_ = -error;
      return;
    }
    // A rename stays within a file system.
    const auto stat = cache::stat_fd(fd->get(), AT_STATX_DONT_SYNC);
    if (!stat || stat->device() != record_.stat.device()) return;
    for (long n = 1; n > 0 && goes_on(); ++pages_) {
      n = sys::getdents64(fd->get(), entries_, k_page);
      for (long at = 0; at < n && goes_on();) {
        const auto& entry = *reinterpret_cast<const base::DirectoryEntry*>(entries_ + at);
        at += entry.length;
        if (entry.inode == record_.stat.inode) {
          try_path(fd->get(), joined(entry.name, ""));
        } else if (!rest.empty() && may_lead_on(entry) &&
                   std::strlen(entry.name) + rest.size() < PATH_MAX) {
          try_path(fd->get(), joined(entry.name, rest));
        }
      }
    }
  }

  // Does not enter another mount, whose server may never answer. Before Linux 5.6, and in sandboxes
  // that refuse openat2, other mounts are entered anyway.
  static base::UniqueFd name_in_file_system(int directory, const char* path) {
    ::open_how how{};
    how.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
    how.resolve = RESOLVE_NO_XDEV;
    long fd = sys::raw(SYS_openat2, directory, sys::arg(path), sys::arg(&how), sizeof how);
    if (fd == -ENOSYS || fd == -EPERM)
      fd = sys::openat(directory, path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    return base::UniqueFd(sys::failed(fd) ? -1 : static_cast<int>(fd));
  }

  static bool may_lead_on(const base::DirectoryEntry& entry) {
    const std::string_view name = entry.name;
    return (entry.type == DT_DIR || entry.type == DT_UNKNOWN) && name != "." && name != "..";
  }

  // Checks the stat before the open, because opening another file could wait or have side effects.
  void try_path(int directory, const char* path) {
    ++tries_;
    const base::UniqueFd named = name_in_file_system(directory, path);
    if (!named) return;
    const auto stat = cache::stat_fd(named.get());
    if (!stat || !stat->same_file(record_.stat)) return;
    const long fd = sys::openat(directory, path, flags_);
    if (fd == -EMFILE || fd == -ENFILE) result_ = static_cast<int>(fd);
    if (sys::failed(fd)) return;
    if (is_our_file(static_cast<int>(fd))) {
      result_ = static_cast<int>(fd);
    } else {
      cache::PosixLocks::close(static_cast<int>(fd));
    }
  }

  // Equal birth times prove that this is the file. Without birth times, a newer file may have the
  // inode, size and mtime. This is then the file if processes of the node have changed it in place
  // and have not removed it, or if all its bytes are those of the record. A file that others have
  // changed counts as a newer file.
  bool is_our_file(int fd) {
    const auto stat = cache::stat_fd(fd, AT_STATX_DONT_SYNC);
    if (!stat || !stat->same_file(record_.stat)) return false;
    if (!cache::is_same_life(fd, *stat, record_.stat)) return false;
    if (stat->same_birth(record_.stat)) return true;
    cache::FileCache* const cache = attachment::attached_cache();
    if (cache != nullptr && cache::was_changed_and_kept(cache->parts().ram, record_)) return true;
    if (!stat->same_content(record_.stat)) return false;
    std::byte* const page = entries_ + k_page + PATH_MAX;
    for (std::size_t at = 0; at < record_.data_size; at += k_page) {
      const std::size_t n = std::min(record_.data_size - at, k_page);
      const long got = sys::pread(fd, page, n, static_cast<std::int64_t>(at));
      if (got != static_cast<long>(n) || std::memcmp(page, record_.data() + at, n) != 0)
        return false;
    }
    return true;
  }

  const char* joined(std::string_view first, std::string_view second) {
    first.copy(name_, first.size());
    second.copy(name_ + first.size(), second.size());
    name_[first.size() + second.size()] = '\0';
    return name_;
  }

  const cache::Record& record_;
  const int flags_;
  int result_ = -ENOENT;
  unsigned pages_ = 0, tries_ = 0;
  base::Scratch scratch_;
  std::byte* entries_ = nullptr;
  char* name_ = nullptr;
};

}  // namespace

int open(const cache::Record& record, int flags) { return Search(record, flags).run(); }

}  // namespace cube::shim::moved_file
