#include "shim/cli/profile/function_name.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace cube::cli {
namespace {

// Returns the position after the closing bracket that matches the opening bracket at `at`.
std::size_t behind_bracket(std::string_view text, std::size_t at) {
  int depth = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '<' || c == '(' || c == '{') ++depth;
    if ((c == '>' && text[at - 1] != '-') || c == ')' || c == '}') --depth;
    if (depth == 0) return at + 1;
  }
  return at;
}

}  // namespace

std::string plain_function(std::string_view demangled) {
  constexpr std::string_view k_anonymous = "(anonymous namespace)", k_operator = "operator";
  constexpr std::size_t k_short = 24;
  std::string plain;
  bool has_arguments = false;
  for (std::size_t at = 0; at < demangled.size();) {
    const char c = demangled[at];
    if (plain.ends_with(k_operator) &&
        (plain.size() == k_operator.size() || plain[plain.size() - k_operator.size() - 1] == ':')) {
      const std::size_t end =
          std::min(demangled.find('(', at + (c == '(' ? 2 : 0)), demangled.size());
      plain += demangled.substr(at, end - at);
      at = end;
    } else if (c == ' ') {
      // The return type precedes the name; "const" may follow the arguments.
      if (has_arguments) break;
      plain.clear();
      ++at;
    } else if (c == '<' || c == '(' || c == '{') {
      const std::size_t end = behind_bracket(demangled, at);
      const std::string_view inside = demangled.substr(at, end - at);
      if (c == '<') plain += inside.size() <= k_short ? inside : "<..>";
      if (c == '{') plain += inside.starts_with("{lambda") ? "{lambda}" : inside;
      if (c == '(' && inside == k_anonymous) plain += inside;
      has_arguments = c == '(' && inside != k_anonymous && !plain.empty();
      at = end;
    } else {
      // A nested function, with its own arguments, may follow.
      has_arguments = false;
      plain += c;
      ++at;
    }
  }
  return plain.empty() ? std::string(demangled) : plain;
}

std::string name_of_symbol(const std::string& symbol) {
  // A name without the prefix "_Z" is not mangled. The demangler would convert a function "f" into
  // "float".
  if (!symbol.starts_with("_Z")) return symbol;
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && text != nullptr ? plain_function(text.get()) : symbol;
}

}  // namespace cube::cli
