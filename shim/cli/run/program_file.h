// The file that runs where a user has named a program. Thread safety: not while others write to the
// environment.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cube::cli {

std::vector<std::string> split_words(std::string_view text, std::string_view separators);

// As execvp finds it; empty: it does not.
std::string find_program(const std::string& name);

// The executable that runs in the end, whatever scripts stand before it. Empty: there is none.
std::string executable_of(const std::string& name);

}  // namespace cube::cli
