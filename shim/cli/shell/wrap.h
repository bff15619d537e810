// Filling of text into lines. Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cube::cli {

// The words of `text` in lines of at most `width` bytes. A longer word has a line of its own.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);

}  // namespace cube::cli
