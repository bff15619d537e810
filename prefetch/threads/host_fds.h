// Copies fds of the host's table into the table of a thread with its own fd table
// (background_thread.h). A copy refers to the same open file, with the same offset and locks. A
// sandbox may refuse these calls, and an old kernel lacks them. Thread-safe.
#pragma once

#include "cache/base/result.h"
#include "cache/base/unique_fd.h"

namespace cube::prefetch {

class HostFds {
 public:
  // pidfd_open, Linux 5.3.
  static base::Result<HostFds> open();
  // pidfd_getfd, Linux 5.6. EBADF: there is no such fd.
  base::Result<base::UniqueFd> copy_of(int fd) const;

 private:
  explicit HostFds(base::UniqueFd process) : process_(std::move(process)) {}
  base::UniqueFd process_;
};

}  // namespace cube::prefetch
