// The names of the working directory. If the shell entered the directory by a symbolic link, there
// are two names: the shell's (with links) and the kernel's. A job may use either name. Thread
// safety: pure functions.
#pragma once

#include <string>
#include <vector>

namespace cube::cli {

// Returns the names, the shell's first.
std::vector<std::string> names_of_working_directory();
// Returns the absolute forms of a path below the working directory, without ".." and ".", one for
// each name of the directory. Empty if no such form leads to the file.
std::vector<std::string> absolute_names(const std::string& text);

}  // namespace cube::cli
