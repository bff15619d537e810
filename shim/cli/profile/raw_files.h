// The raw files of a profile in their directory. Thread safety: that of the kernel's calls.
#pragma once

#include <string>
#include <vector>

#include "shim/cli/profile/profile_raw.h"

namespace cube::cli {

inline constexpr const char* k_profile_directory = "cubeshim-profile";
inline constexpr const char* k_raw_name = "raw.";

// Returns the files that have the name and the first word of a raw file, because the directory
// belongs to the user, and other files in it may have such names.
std::vector<std::string> raw_files_in(const std::string& directory);
// Returns a line that says why a file cannot be read; empty on success.
std::string read_raw_files(const std::vector<std::string>& paths, std::vector<RawFile>& files);

}  // namespace cube::cli
