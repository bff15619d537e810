// Names of native functions in readable form. Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace cube::cli {

// Returns the name of a C++ function, and omits the arguments and the return type. Replaces long
// template arguments by "<..>".
std::string plain_function(std::string_view demangled);
// Like plain_function, but for the mangled name of a symbol in a library.
std::string name_of_symbol(const std::string& symbol);

}  // namespace cube::cli
