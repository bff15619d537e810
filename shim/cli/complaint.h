// Prints, in one line, why a command cannot go on, or what it leaves out. Thread-safe.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace cube::cli {

// Writes to stderr. A closed or full stderr does not stop the command.
template <typename... Values>
void tell(fmt::format_string<Values...> text, Values&&... values) {
  const std::string line = fmt::format(text, std::forward<Values>(values)...);
  [[maybe_unused]] const auto written = std::fwrite(line.data(), 1, line.size(), stderr);
}

// Returns `status`, with which the command ends.
inline int complain(int status, std::string_view why) {
  tell("cubeshim: {}\n", why);
  return status;
}

}  // namespace cube::cli
