// The absolute path of a directory that a relative path begins at: the working directory, or an
// open one. Thread safety: all of it; async-signal-safe, no allocation.
#pragma once

#include <string_view>

#include "shim/path/path_filter.h"

namespace cube::shim::path_filter {

// As the kernel tells it. Empty: it was removed, or lies outside the root. `buffer`: PATH_MAX, as
// in the next.
std::string_view working_directory(char* buffer);

// The directory in which relative paths begin, with a zero behind it. Empty: it has no path, or
// none that surely leads there. For changes, which must not be missed, the kernel's word is enough.
std::string_view directory_of(int dir, char* buffer, Care care);

}  // namespace cube::shim::path_filter
