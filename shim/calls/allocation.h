// Allocations in files (fallocate) of the file system in which the region lies. If the file system
// is full, the region gives back the missing memory, and the call is repeated: a program that gets
// this memory without the library also gets it with the library. Costs nothing unless an allocation
// fails. Thread-safe and async-signal-safe.
#pragma once

#include <sys/types.h>

#include <cerrno>

namespace cube::shim {

class Allocation {
 public:
  Allocation(int fd, off_t at, off_t bytes) : fd_(fd), at_(at), bytes_(bytes) {}
  // Call it after ENOSPC; true if memory has been given back. Keeps errno.
  bool make_room();

 private:
  int fd_;
  off_t at_, bytes_;
  int tries_ = 0;
};

// Calls fallocate (-1 and errno) or posix_fallocate (returns the error).
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
