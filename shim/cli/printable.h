// Makes names of files and functions printable on a terminal. Thread safety: pure.
#pragma once

#include <string>
#include <string_view>

namespace cube::cli {

// Returns the name without control characters, so that a line of output can contain it.
std::string printable(std::string_view name);

}  // namespace cube::cli
