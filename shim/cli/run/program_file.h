// Finds the file that is executed when a user names a program. Thread safety: not while others
// write to the environment.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cube::cli {

std::vector<std::string> split_words(std::string_view text, std::string_view separators);

// Returns the file that execvp finds; empty if it finds none.
std::string find_program(const std::string& name);

// Returns the executable that finally runs, after the interpreters of all scripts are resolved.
// Empty if there is none.
std::string executable_of(const std::string& name);

}  // namespace cube::cli
