// Functions for the text of paths. All paths are absolute and normalized: they contain no "//", "."
// or "..", and only "/" itself ends with a slash. Thread safety: pure functions.
#pragma once

#include <string_view>

namespace cube::base {

// Whether `path` lies below `directory`. The result is false for the directory itself.
inline bool is_below(std::string_view path, std::string_view directory) {
  if (directory == "/") return path.size() > 1;
  return path.size() > directory.size() && path[directory.size()] == '/' &&
         path.starts_with(directory);
}

// Like is_below, but true for the directory itself, too.
inline bool is_at_or_below(std::string_view path, std::string_view directory) {
  return path == directory || is_below(path, directory);
}

struct SplitPath {
  std::string_view directory, name;
};
// Splits a path that is not "/".
inline SplitPath split_path(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return {slash == 0 ? std::string_view("/") : path.substr(0, slash), path.substr(slash + 1)};
}

}  // namespace cube::base
