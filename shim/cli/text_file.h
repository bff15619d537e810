// Writes a text to a file. Thread safety: that of the kernel's calls.
#pragma once

#include <string>
#include <string_view>

namespace cube::cli {

// Returns false with errno set on failure.
bool write_whole(int fd, std::string_view text);

// Replaces the contents of the file. Returns a line that says why it failed; empty on success.
std::string write_text_file(const std::string& path, std::string_view text);

}  // namespace cube::cli
