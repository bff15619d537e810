// A text that becomes a file. Thread safety: as the calls of the kernel.
#pragma once

#include <string>
#include <string_view>

namespace cube::cli {

// False: errno says why.
bool write_whole(int fd, std::string_view text);

// In the place of what the file had. Empty, or the line that says why it cannot be written.
std::string write_text_file(const std::string& path, std::string_view text);

}  // namespace cube::cli
