// The directory of one cache on disk, DIRECTORY/cubeshim-UID-NAME: made or refused, its names, its
// lock, its room. Invariants: it belongs to this user and nobody else may write to it; its file
// `version` names this very format; all names are below it, and none of them is followed if it is a
// symbolic link. Thread safety: immutable once open. No fd stays open: the host could close it.
// Every call by name may meet a directory that somebody has removed, and then says ENOENT.
#pragma once

#include <fcntl.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cache/base/unique_fd.h"

namespace cube::cache {

// The kernel lets go when its holder dies. Given back by hand, for a child forked meanwhile has the
// same file description.
class DirectoryLock {
 public:
  explicit DirectoryLock(base::UniqueFd fd) : fd_(std::move(fd)) {}
  DirectoryLock(DirectoryLock&&) noexcept = default;
  DirectoryLock& operator=(DirectoryLock&&) = delete;
  ~DirectoryLock();

 private:
  base::UniqueFd fd_;
};

// Flags of every open of a name below such a directory.
inline constexpr int k_open_below = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;

class DiskDirectory {
 public:
  // A caller in the program's own thread waits for the lock no longer than this.
  static constexpr long k_wait_for_lock_ms = 2000;
  // On failure, `why` is one line for the user.
  static base::Result<DiskDirectory> open(const std::string& parent, const std::string& name,
                                          bool is_read_only, std::string& why);
  // The same of whatever version, if it is there (ENOENT).
  static base::Result<DiskDirectory> look(const std::string& parent, const std::string& name,
                                          std::string& why);

  // Short, for it lies on the stack of the program's smallest threads and of its signal handlers.
  static constexpr std::size_t k_longest = 1000;
  struct Path {
    char text[k_longest + 64];
  };
  // Async-signal-safe.
  Path path_of(const char* name) const;
  Path path_of_segment(std::uint32_t number) const;
  // EPERM: it is not a file of this directory's owner.
  base::Result<base::UniqueFd> open_segment(std::uint32_t number, int flags) const;

  // One process at a time; gives up after `at_most_ms` with EBUSY.
  base::Result<DirectoryLock> lock(long at_most_ms) const;
  // The numbers of all segment files, in rising order.
  base::Result<std::vector<std::uint32_t>> list_segments() const;

  struct DiskRoom {
    std::uint64_t total = 0, available = 0;  // bytes of the file system
  };
  base::Result<DiskRoom> room() const;
  const std::string& path() const { return path_; }
  // Of this library's version? One that has none gets it, unless it is to be left as it is.
  base::Result<void> check_version(bool is_read_only, std::string& why) const;

 private:
  Path path_below(std::string_view name) const;
  base::Result<void> name_it(const std::string& parent, const std::string& name, std::string& why);
  base::Result<void> find_it(std::string& why);
  std::string path_;
  uid_t owner_ = 0;
};

// flock without waiting: false where another holds it.
bool try_lock(int fd, int operation);

}  // namespace cube::cache
