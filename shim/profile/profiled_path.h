// Decides by the text of a path whether the profiler records it. The path may be absolute, or
// relative to the working directory or an open directory. "." and "//" are removed; ".." is kept.
// Thread-safe and async-signal-safe.
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
