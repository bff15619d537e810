// A memcached's file on NVMe. Invariants: The file is locked while the memcached lives, because the
// memcached inherits the fd. Only the holder of the lock unlinks the file. No other user can ever
// open the file. So two memcacheds never write to the same file, even if they belong to different
// users, region names or containers. Thread safety: one thread.
#pragma once

#include <string>

#include "cache/base/unique_fd.h"

namespace cube::cli {

class PoolStorage {
 public:
  // Makes and locks the file for `account`, or for this user if `account` is empty. Returns a line
  // with the reason on failure, or an empty string.
  std::string take(const std::string& path, const std::string& account);
  // Keeps the fd, and so the lock, open across an exec.
  void keep_at_exec() const;
  // Removes the file, if there is one.
  void remove();

 private:
  std::string path_;
  base::UniqueFd fd_;
};

// Removes the file of a memcached that has ended, unless another memcached has locked it.
void remove_unused_storage(const std::string& path);

}  // namespace cube::cli
