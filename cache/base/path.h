// Paths by their text alone. They are absolute and normalised: without "//", "." and "..", and no slash at the end but that of
// "/". Thread safety: pure functions.
#pragma once

#include <string_view>

namespace cube::base {

// Does `path` lie below `directory`? The directory itself does not.
inline bool is_below(std::string_view path, std::string_view directory) {
  if (directory == "/") return path.size() > 1;
  return path.size() > directory.size() && path[directory.size()] == '/' && path.starts_with(directory);
}

// The directory itself, too.
inline bool is_at_or_below(std::string_view path, std::string_view directory) {
  return path == directory || is_below(path, directory);
}

}  // namespace cube::base
