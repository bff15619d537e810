// The file on NVMe of one memcached. Invariants: the file is locked as long as that memcached
// lives, because memcached inherits the fd; only the holder of the lock unlinks the file; no other
// user has been able to open it. Therefore two starts (by two users, under two names of a region,
// in two containers) never write to one file. Thread safety: one thread.
#pragma once

#include <string>

#include "cache/base/unique_fd.h"

namespace cube::cli {

class PoolStorage {
 public:
  // Makes and locks the file for `account`; empty: for this user. Returns a line that says why it
  // cannot; empty on success.
  std::string take(const std::string& path, const std::string& account);
  // Keeps the fd and its lock for the program that this process becomes.
  void keep_at_exec() const;
  // Does nothing without a file.
  void remove();

 private:
  std::string path_;
  base::UniqueFd fd_;
};

// Removes the file of a memcached that has ended, unless another memcached has it by now.
void remove_unused_storage(const std::string& path);

}  // namespace cube::cli
