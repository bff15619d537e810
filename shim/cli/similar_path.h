// Suggests the path that a user may have meant. Thread safety: pure functions, except that they
// list a directory.
#pragma once

#include <string>
#include <string_view>

namespace cube::cli {

// "; did you mean /mnt/data?" for a path that failed with ENOENT, if its directory has a similar
// name. Otherwise empty.
std::string path_hint(std::string_view path, int error);

}  // namespace cube::cli
