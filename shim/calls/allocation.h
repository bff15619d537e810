// Allocations in files (fallocate) of the file system in which the region lies. If it is full, the
// region gives back what the program is missing, and the call is made again: a program that gets
// this memory without the library gets it with the library, too. Costs nothing unless an allocation
// fails. Thread safety: all of it; async-signal-safe.
#pragma once

#include <sys/types.h>

#include <cerrno>

namespace cube::shim {

class Allocation {
 public:
  Allocation(int fd, off_t at, off_t bytes) : fd_(fd), at_(at), bytes_(bytes) {}
  // After ENOSPC: true if memory has been given back. Keeps errno.
  bool make_room();

 private:
  int fd_;
  off_t at_, bytes_;
  int tries_ = 0;
};

// Calls fallocate or posix_fallocate, whose results are -1 and errno, or the error.
template <typename Call>
int allocate(Allocation allocation, Call&& call) {
  const int before = errno;
  while (true) {
    const int result = call();
    const bool is_full = result == ENOSPC || (result == -1 && errno == ENOSPC);
    if (!is_full || !allocation.make_room()) return result;
    errno = before;
  }
}

}  // namespace cube::shim
