// The directory of one cache on disk, DIRECTORY/cubeshim-UID-NAME. This class creates or refuses
// the directory, and provides its paths, its lock and its free space. Invariants: the directory
// belongs to this user, and no other user may write to it. The file `version` in the directory
// names exactly this format. All paths lie below it, and symbolic links at their ends are not
// followed. Thread safety: immutable after open(). No fd stays open, because the host program could
// close it. A call by path returns ENOENT if the directory was removed.
#pragma once

#include <fcntl.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cache/base/unique_fd.h"

namespace cube::cache {

// The lock of a directory. The kernel releases the lock when its holder dies. The destructor
// unlocks explicitly, because a child that was forked since then shares the file description.
class DirectoryLock {
 public:
  explicit DirectoryLock(base::UniqueFd fd) : fd_(std::move(fd)) {}
  DirectoryLock(DirectoryLock&&) noexcept = default;
  DirectoryLock& operator=(DirectoryLock&&) = delete;
  ~DirectoryLock();

 private:
  base::UniqueFd fd_;
};

// The flags of every open below such a directory. O_NONBLOCK, because an open must not wait for a
// special file that another program has put there.
inline constexpr int k_open_below = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;

class DiskDirectory {
 public:
  // The longest time for which a thread of the program waits for the lock.
  static constexpr long k_wait_for_lock_ms = 2000;
  // Opens or creates the directory. On failure, `why` is one line for the user.
  static base::Result<DiskDirectory> open(const std::string& parent, const std::string& name,
                                          bool is_read_only, std::string& why);
  // Opens an existing directory of any version. ENOENT: it does not exist.
  static base::Result<DiskDirectory> look(const std::string& parent, const std::string& name,
                                          std::string& why);

  // This limit is low, because a path lies on the stacks of small threads and of signal handlers of
  // the program.
  static constexpr std::size_t k_longest = 1000;
  struct Path {
    char text[k_longest + 64];
  };
  // Async-signal-safe.
  Path path_of(const char* name) const;
  Path path_of_segment(std::uint32_t number) const;
  // EPERM: the file does not belong to the owner of this directory.
  base::Result<base::UniqueFd> open_segment(std::uint32_t number, int flags) const;

  // Takes the lock, which excludes other processes. EBUSY: the lock was not free within
  // `at_most_ms`.
  base::Result<DirectoryLock> lock(long at_most_ms) const;
  // Returns the numbers of all segment files in ascending order.
  base::Result<std::vector<std::uint32_t>> list_segments() const;

  struct DiskRoom {
    std::uint64_t total = 0, available = 0;  // bytes of the file system
  };
  base::Result<DiskRoom> room() const;
  const std::string& path() const { return path_; }
  // Checks that the directory has this library's version. If the directory has no version and
  // `is_read_only` is false, it gets this version.
  base::Result<void> check_version(bool is_read_only, std::string& why) const;

 private:
  Path path_below(std::string_view name) const;
  base::Result<void> name_it(const std::string& parent, const std::string& name, std::string& why);
  base::Result<void> find_it(std::string& why);
  std::string path_;
  uid_t owner_ = 0;
};

// Calls flock without waiting. Returns false if another process holds the lock.
bool try_lock(int fd, int operation);

}  // namespace cube::cache
