// A command that continues in a child. The parent waits until the child is ready or has failed, so
// that wrong usage is reported as usual. Thread safety: one thread. Call split() while the process
// has no other thread.
#pragma once

#include <sys/types.h>

#include <optional>

#include "cache/base/unique_fd.h"

namespace cube::cli {

class BackgroundChild {
 public:
  // In the child, returns nothing. In the parent, returns the exit status, and sets `pid` to the
  // child's PID, or to 0 if the child has ended.
  std::optional<int> split(pid_t& pid);
  // Call this in the child. The parent then exits, and the child leaves the parent's terminal and
  // session. From then on, output to the terminal is lost.
  void ready();

 private:
  base::UniqueFd tell_;
};

}  // namespace cube::cli
