// Names of native functions in readable form. Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace cube::cli {

// A C++ function without its arguments and its return type; long template arguments become "<..>".
std::string plain_function(std::string_view demangled);
// Like the above, but takes the mangled name of a symbol in a library.
std::string name_of_symbol(const std::string& symbol);

}  // namespace cube::cli
