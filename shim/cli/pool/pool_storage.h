// The file on NVMe of one memcached. Invariants: the file is locked as long as that memcached
// lives, because memcached inherits the fd; only the holder of the lock unlinks the file; no other
// user could ever open it. So two memcacheds never write to one file, even if they belong to two
// users, two region names or two containers. Thread safety: one thread.
#pragma once

#include <string>

#include "cache/base/unique_fd.h"

namespace cube::cli {

class PoolStorage {
 public:
  // Makes and locks the file for `account`, or for this user if that is empty. Returns a line with
  // the reason if it cannot; empty on success.
  std::string take(const std::string& path, const std::string& account);
  // Keeps the fd and its lock across the exec of this process.
  void keep_at_exec() const;
  // Does nothing if there is no file.
  void remove();

 private:
  std::string path_;
  base::UniqueFd fd_;
};

// Removes the file of a memcached that has ended, unless another memcached has it by now.
void remove_unused_storage(const std::string& path);

}  // namespace cube::cli
