// A command that continues in a child. The parent stays until the child is ready or has failed, so
// that wrong usage is reported as usual. Thread safety: one thread; split() before there is
// another.
#pragma once

#include <sys/types.h>

#include <optional>

#include "cache/base/unique_fd.h"

namespace cube::cli {

class BackgroundChild {
 public:
  // Returns nothing in the child. In the parent, returns the exit status, and sets `pid` to the
  // child's, or to 0 if the child has ended.
  std::optional<int> split(pid_t& pid);
  // Called in the child: lets the parent exit, and leaves its terminal and session. From then on,
  // output to a terminal is lost.
  void ready();

 private:
  base::UniqueFd tell_;
};

}  // namespace cube::cli
