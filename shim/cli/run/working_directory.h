// The working directory has two names where the shell came by a symbolic link: that of the shell,
// links and all, and that of the kernel. A job may use either. Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

namespace cube::cli {

// That of the shell first.
std::vector<std::string> names_of_working_directory();
// A path below it without ".." and ".", once for each name. Empty: no such name leads to it.
std::vector<std::string> absolute_names(const std::string& text);

}  // namespace cube::cli
