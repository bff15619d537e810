// Finds and reads the raw files of a profile. Thread safety: that of the kernel's calls.
#pragma once

#include <string>
#include <vector>

#include "shim/cli/profile/profile_raw.h"

namespace cube::cli {

inline constexpr const char* k_profile_directory = "cubeshim-profile";
inline constexpr const char* k_raw_name = "raw.";

// Returns the files with the name and the first word of a raw file. The name does not suffice,
// because the directory belongs to the user, whose files may have such names.
std::vector<std::string> raw_files_in(const std::string& directory);
// On failure, returns a line that says why a file cannot be read. On success, returns an empty
// string.
std::string read_raw_files(const std::vector<std::string>& paths, std::vector<RawFile>& files);

}  // namespace cube::cli
