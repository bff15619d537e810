// The names of the working directory. There are two if the shell entered it by a symbolic link: the
// shell's, with links, and the kernel's. A job may use either. Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

namespace cube::cli {

// Returns the names, the shell's first.
std::vector<std::string> names_of_working_directory();
// Returns a path below it without ".." and ".", once for each name. Empty if no name leads to it.
std::vector<std::string> absolute_names(const std::string& text);

}  // namespace cube::cli
