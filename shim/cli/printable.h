// Names of files and functions on a terminal. Thread safety: pure.
#pragma once

#include <string>
#include <string_view>

namespace cube::cli {

// For a line of output: no control characters.
std::string printable(std::string_view name);

}  // namespace cube::cli
