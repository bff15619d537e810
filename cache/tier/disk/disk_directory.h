// The directory of one cache on disk, DIRECTORY/cubeshim-UID-NAME. The class creates or checks the
// directory, and provides paths in it, its lock, and its free space. Invariants: the directory
// belongs to this user, and no other user may write to it. The file `version` in the directory
// names exactly this format. All paths lie below the directory, and symbolic links at their ends
// are not followed. No fd stays open, because the host program could close it; if the directory was
// removed, calls return ENOENT. Thread safety: immutable after open().
#pragma once

#include <fcntl.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/base/unique_fd.h"

namespace cube::cache {

// The lock of a directory. The kernel releases the lock when its holder dies. The destructor
// unlocks explicitly: closing the fd would not suffice if a child was forked since the lock was
// taken, because the child shares the open file.
class DirectoryLock {
 public:
  explicit DirectoryLock(base::UniqueFd fd) : fd_(std::move(fd)) {}
  DirectoryLock(DirectoryLock&&) noexcept = default;
  DirectoryLock& operator=(DirectoryLock&&) = delete;
  ~DirectoryLock();

 private:
  base::UniqueFd fd_;
};

// The flags of every open below a DiskDirectory. With O_NONBLOCK, an open does not wait for a
// special file that another program may have put there.
inline constexpr int k_open_below = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;

class DiskDirectory {
 public:
  // The longest time for which a thread of the program waits for the lock.
  static constexpr long k_wait_for_lock_ms = 2000;
  // Opens or creates the directory. On failure, `why` explains the failure to the user in one line.
  static base::Result<DiskDirectory> open(const std::string& parent, const std::string& name,
                                          bool is_read_only, std::string& why);
  // Opens an existing directory of any version. ENOENT: it does not exist.
  static base::Result<DiskDirectory> look(const std::string& parent, const std::string& name,
                                          std::string& why);

  // The longest path. This limit is low, because paths lie on the stacks of small threads and of
  // the program's signal handlers.
  static constexpr std::size_t k_longest = 1000;
  struct Path {
    char text[k_longest + 64];
  };
  // Async-signal-safe.
  Path path_of(const char* name) const;
  Path path_of_segment(std::uint32_t number) const;
  // EPERM: the file does not belong to the owner of this directory.
  base::Result<base::UniqueFd> open_segment(std::uint32_t number, int flags) const;

  // Takes the lock, which excludes other processes. EBUSY: the lock did not become free within
  // `at_most_ms`.
  base::Result<DirectoryLock> lock(long at_most_ms) const;
  // Returns the numbers of all segment files in ascending order.
  base::Result<std::vector<std::uint32_t>> list_segments() const;

  struct DiskRoom {
    std::uint64_t total = 0, available = 0;  // bytes of the file system
  };
  base::Result<DiskRoom> room() const;
  const std::string& path() const { return path_; }
  // Checks that the directory has the version of this library. If the directory has no version and
  // `is_read_only` is false, writes the version.
  base::Result<void> check_version(bool is_read_only, std::string& why) const;

 private:
  Path path_below(std::string_view name) const;
  base::Result<void> name_it(const std::string& parent, const std::string& name, std::string& why);
  base::Result<void> find_it(std::string& why);
  // Creates the file `version`. Does nothing if another process has just created it.
  base::Result<void> write_version(std::string_view text) const;
  std::string path_;
  uid_t owner_ = 0;
};

// Calls flock without waiting. Returns false if the lock is held elsewhere.
bool try_lock(int fd, int operation);

}  // namespace cube::cache
