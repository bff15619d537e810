// The directory `site` of the Python package. Its sitecustomize, which Python runs if PYTHONPATH
// names the directory, makes data loaders announce what they will read. Thread safety: find_beside
// and is_interpreter are pure except for reading the file system; add and start change the
// environment.
#pragma once

#include <string>
#include <string_view>

namespace cube::shim::python_site {

// Returns the real path of the site directory that belongs to the library at this path. Empty if
// there is none, if PYTHONPATH cannot hold its name, or if it could have been made by a user other
// than this one, root and the owner of the library.
std::string find_beside(const char* library);
// The log line for an empty result, with the library's path.
inline constexpr std::string_view k_is_missing =
    "data loaders of Python announce nothing: {} has no directory site of the package cubeshim "
    "beside it, or another user may have put it there";

// True if a program of this file name is a Python: python3.11, python3.13t, python3-dbg, pypy3.10.
bool is_interpreter(std::string_view name);

// Puts `site` in front of PYTHONPATH, unless PYTHONPATH already has that entry, or no program could
// be started with the longer value.
void add(const std::string& site);

// Runs before main, in the library: if this program is a Python and the package lies next to the
// library, add(). With `says_why`, logs (info) if the package is not there.
void start(bool says_why);

}  // namespace cube::shim::python_site
