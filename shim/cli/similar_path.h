// The path that somebody may have meant. Thread safety: pure functions, but for the directory that
// they list.
#pragma once

#include <string>
#include <string_view>

namespace cube::cli {

// "; did you mean /mnt/data?" for a path that failed with ENOENT and has a similar name beside it.
// Otherwise empty.
std::string path_hint(std::string_view path, int error);

}  // namespace cube::cli
