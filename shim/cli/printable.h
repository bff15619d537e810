// Makes names of files and functions printable on a terminal. Thread safety: pure.
#pragma once

#include <string>
#include <string_view>

namespace cube::cli {

// For a line of output: without control characters.
std::string printable(std::string_view name);

}  // namespace cube::cli
