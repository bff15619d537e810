// The file on NVMe of one memcached. Invariants: it is locked as long as that memcached lives,
// which inherits the fd; only who has the lock unlinks the file; nobody else has been able to open
// it. So two starts, of two users, names of a region or containers, never write to one file. Thread
// safety: one thread.
#pragma once

#include <string>

#include "cache/base/unique_fd.h"

namespace cube::cli {

class PoolStorage {
 public:
  // A line that says why not; empty: it is there, and locked. `account`: who opens it; empty: who
  // asks.
  std::string take(const std::string& path, const std::string& account);
  // For the program that this process becomes.
  void keep_at_exec() const;
  // No-op without a file.
  void remove();

 private:
  std::string path_;
  base::UniqueFd fd_;
};

// Removes the file of a memcached that has ended, unless another one has it by now.
void remove_unused_storage(const std::string& path);

}  // namespace cube::cli
