// An allocation (fallocate) in a file on the file system that holds the region. If that file system
// is full, the region gives back the missing memory, and the call is repeated. So a call that
// succeeds without the library also succeeds with it. The library does nothing until an allocation
// fails. Thread-safe and async-signal-safe.
#pragma once

#include <sys/types.h>

#include <cerrno>

namespace cube::shim {

class Allocation {
 public:
  Allocation(int fd, off_t at, off_t bytes) : fd_(fd), at_(at), bytes_(bytes) {}
  // Call this after ENOSPC. Returns true if the region gave memory back. Keeps errno.
  bool make_room();

 private:
  int fd_;
  off_t at_, bytes_;
  int tries_ = 0;
};

// `call` is fallocate (returns -1 and sets errno) or posix_fallocate (returns the error).
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
