// Makes names of files and functions printable on a terminal. Thread safety: pure.
#pragma once

#include <string>
#include <string_view>

namespace cube::cli {

// Returns the name with control characters replaced, so that it can be printed within a line.
std::string printable(std::string_view name);

}  // namespace cube::cli
