// Suggests the path that a user may have meant. Thread safety: pure functions that list a
// directory.
#pragma once

#include <string>
#include <string_view>

namespace cube::cli {

// If a path failed with ENOENT and its directory has a similar name, returns "; did you mean
// /mnt/data?". Otherwise returns an empty string.
std::string path_hint(std::string_view path, int error);

}  // namespace cube::cli
