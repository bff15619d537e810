// Writes a text to a file. Thread safety: that of the kernel's calls.
#pragma once

#include <string>
#include <string_view>

namespace cube::cli {

// On failure, returns false and sets errno.
bool write_whole(int fd, std::string_view text);

// Replaces the content of the file. On failure, returns a line that says why. On success, returns
// an empty string.
std::string write_text_file(const std::string& path, std::string_view text);

}  // namespace cube::cli
