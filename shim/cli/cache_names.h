// The caches of this user in a directory. Thread safety: pure function.
#pragma once

#include <string>
#include <vector>

namespace cube::cli {

// In the order of the alphabet. A file that no cache would have made (a socket, a strange name) is
// none.
std::vector<std::string> names_of_caches(const std::string& directory);

}  // namespace cube::cli
