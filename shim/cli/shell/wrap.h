// Filling of text into lines. Thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cube::cli {

// The words of `text` in lines of at most `width` bytes. A longer word gets its own line.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);

// The lines of `text`, those of more than `width` columns broken at spaces. What follows a break
// stands below the last column of a table, or is indented by two. Colours take no columns.
std::string fitted(std::string_view text, std::size_t width);

// The width of a terminal; 0: it is none, or the width is not known.
std::size_t columns_of(int fd);

// Prints the text to standard output, fitted if that is a terminal.
void print_fitted(std::string_view text);

}  // namespace cube::cli
