// Lists the caches of this user in a directory. Thread safety: pure function.
#pragma once

#include <string>
#include <vector>

namespace cube::cli {

// In alphabetical order. Leaves out files that no cache would have made (a socket, an unusual
// name).
std::vector<std::string> names_of_caches(const std::string& directory);

}  // namespace cube::cli
