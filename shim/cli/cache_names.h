// Lists the caches of this user in a directory. Thread safety: pure function.
#pragma once

#include <string>
#include <vector>

namespace cube::cli {

// Returns the names in alphabetical order, without files that no cache can have made (a socket, an
// unusual name).
std::vector<std::string> names_of_caches(const std::string& directory);

}  // namespace cube::cli
