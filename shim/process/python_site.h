// The directory `site` of the Python package. Its sitecustomize has a Python's data loaders
// announce what they will read, and runs if PYTHONPATH names the directory. Thread safety:
// find_beside and is_interpreter are pure but for the file system; add and start change the
// environment.
#pragma once

#include <string>
#include <string_view>

namespace cube::shim::python_site {

// The site directory that belongs to the library at this path, by its real path. Empty: there is
// none, PYTHONPATH cannot hold its name, or a user could have made it who is neither this one nor
// root nor the owner of the library.
std::string find_beside(const char* library);
// The line for that, with the library's path.
inline constexpr std::string_view k_is_missing =
    "data loaders of Python announce nothing: {} has no directory site of the package cubeshim "
    "beside it, or others may have put "
    "it there";

// Is a program of this file name a Python: python3.11, python3.13t, python3-dbg, pypy3.10?
bool is_interpreter(std::string_view name);

// Puts `site` in front of PYTHONPATH, unless an entry of it is that directory already, or no
// program could be started with it then.
void add(const std::string& site);

// Before main, in the library: if this program is a Python and the package lies beside the library,
// add(). `says_why`: the log tells (info) where it does not.
void start(bool says_why);

}  // namespace cube::shim::python_site
