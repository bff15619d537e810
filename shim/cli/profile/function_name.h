// Names of native functions as people read them. Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace cube::cli {

// A function of C++ without its arguments and without what it returns; long arguments of templates
// are "<..>".
std::string plain_function(std::string_view demangled);
// By the name of a symbol in a library.
std::string name_of_symbol(const std::string& symbol);

}  // namespace cube::cli
