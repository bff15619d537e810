// Fills text into lines. Thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cube::cli {

// Returns the words of `text` in lines of at most `width` bytes. A longer word has its own line.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);

// Breaks lines of `text` that are wider than `width` columns at spaces. Indents the rest of a
// broken line to the last column of a table, or by two columns. Sequences for colours do not count
// as columns.
std::string fitted(std::string_view text, std::size_t width);

// Returns the width of a terminal, or 0 if the fd is not a terminal or its width is unknown.
std::size_t columns_of(int fd);

// Prints the text to standard output. If standard output is a terminal, fits the text to it.
void print_fitted(std::string_view text);

}  // namespace cube::cli
