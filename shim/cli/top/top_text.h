// Makes texts from other processes safe for a terminal, and wraps lines. Thread safety: pure
// functions, except command_of, which reads /proc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cube::cli {

// Makes a text from another process safe for a terminal.
std::string printed(std::string text);

// Returns the command line of a process, or an empty string if it cannot be read.
std::string command_of(std::uint32_t pid);
// Returns "python3 train.py" for "/usr/bin/python3 train.py".
std::string without_folder(const std::string& command);

// Adds the text in lines of at most `columns` characters. Breaks lines at spaces, if there are any.
void add_wrapped(std::vector<std::string>& lines, std::string text, std::size_t columns);

}  // namespace cube::cli
