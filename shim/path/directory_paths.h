// Finds the absolute path of the directory in which a relative path begins: the working directory
// or an open directory. Thread-safe and async-signal-safe; allocates nothing.
#pragma once

#include <string_view>

#include "shim/path/path_filter.h"

namespace cube::shim::path_filter {

// Returns the path that the kernel reports; empty if the directory was removed or lies outside the
// root. `buffer` must have PATH_MAX bytes, here and below.
std::string_view working_directory(char* buffer);

// Returns the null-terminated path of the directory in which paths relative to `dir` begin. Empty
// if there is no such path, or if the path may lead elsewhere. With Care::thorough, does not check
// whether the path may lead elsewhere.
std::string_view directory_of(int dir, char* buffer, Care care);

}  // namespace cube::shim::path_filter
