// Finds the file that will be executed if a user names a program. Thread safety: no other thread
// may change the environment at the same time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cube::cli {

std::vector<std::string> split_words(std::string_view text, std::string_view separators);

// Returns the file that execvp would execute, or an empty string.
std::string find_program(const std::string& name);

// Returns the executable that would run after the interpreters of all scripts are resolved, or an
// empty string.
std::string executable_of(const std::string& name);

}  // namespace cube::cli
