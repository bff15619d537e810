// Decides whether the profiler records a path, by its text alone: absolute, or below the working
// directory or an open directory. "." and "//" are removed, ".." stays. Thread-safe and
// async-signal-safe.
#pragma once

#include <climits>
#include <string_view>

#include "cache/base/settings/config.h"

namespace cube::shim::profile {

class ProfiledPath {
 public:
  // Returns false if the path is not recorded.
  bool find(const base::Config& config, int dir, const char* path);
  std::string_view text() const { return {text_, size_}; }

 private:
  bool append(const char* path);

  char text_[PATH_MAX];
  std::size_t size_ = 0;
};

}  // namespace cube::shim::profile
