// Filling of text into lines. Thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cube::cli {

// Fills the words of `text` into lines of at most `width` bytes. A longer word gets its own line.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);

// Breaks the lines of `text` that are wider than `width` columns at spaces. The rest is placed
// below the last column of a table, or indented by two. Colours take no columns.
std::string fitted(std::string_view text, std::size_t width);

// Returns the width of a terminal; 0 if it is not a terminal, or if the width is unknown.
std::size_t columns_of(int fd);

// Prints the text to standard output, fitted if that is a terminal.
void print_fitted(std::string_view text);

}  // namespace cube::cli
