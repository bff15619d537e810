// The directory `site` of the Python package. If PYTHONPATH names this directory, Python runs the
// sitecustomize in the directory. This sitecustomize makes data loaders announce which files they
// will read. Thread safety: find_beside and is_interpreter only read the file system; add and start
// change the environment.
#pragma once

#include <string>
#include <string_view>

namespace cube::shim::python_site {

// Returns the real path of the site directory that belongs to the library at this path. Empty if
// there is no such directory, or if PYTHONPATH cannot hold its name. Also empty if the directory
// may have been made by a user other than this user, root or the owner of the library.
std::string find_beside(const char* library);
// The log line for an empty result, with the library's path.
inline constexpr std::string_view k_is_missing =
    "data loaders of Python announce nothing: {} has no directory site of the package cubeshim "
    "beside it, or another user may have put it there";

// True for the file name of a Python interpreter: python3.11, python3.13t, python3-dbg, pypy3.10.
bool is_interpreter(std::string_view name);

// Prepends `site` to PYTHONPATH. Does nothing if PYTHONPATH already has that entry, or if the
// longer value would prevent programs from starting.
void add(const std::string& site);

// The library calls this before main. If this program is a Python interpreter and the package lies
// next to the library, calls add(). If `says_why` is set and the package is missing, logs this
// (info).
void start(bool says_why);

}  // namespace cube::shim::python_site
