// Lists the caches of this user in a directory. Thread safety: pure function.
#pragma once

#include <string>
#include <vector>

namespace cube::cli {

// Returns the names in alphabetical order. Omits files that no cache can have made, such as sockets
// and files with unusual names.
std::vector<std::string> names_of_caches(const std::string& directory);

}  // namespace cube::cli
