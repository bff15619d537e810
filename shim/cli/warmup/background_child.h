// A command that goes on in a child. The parent stays until the child is ready or has failed, so
// that wrong use is told as ever. Thread safety: one thread; split before there is another.
#pragma once

#include <sys/types.h>

#include <optional>

#include "cache/base/unique_fd.h"

namespace cube::cli {

class BackgroundChild {
 public:
  // In the child: nothing. In the parent: the status to end with. `pid` is the child's there, or 0
  // if the child has ended.
  std::optional<int> split(pid_t& pid);
  // In the child: lets the parent go, and leaves its terminal and session. Output to a terminal is
  // lost from now on.
  void ready();

 private:
  base::UniqueFd tell_;
};

}  // namespace cube::cli
