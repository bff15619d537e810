// Prints a line that says why a command cannot continue, or which work it skips. Thread-safe.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace cube::cli {

// Writes to stderr. If stderr is a terminal, folds the text to its width. A closed or full stderr
// does not stop the command.
void tell_text(std::string text);

template <typename... Values>
void tell(fmt::format_string<Values...> text, Values&&... values) {
  tell_text(fmt::format(text, std::forward<Values>(values)...));
}

// Prints the reason. Returns `status` as the exit status of the command.
inline int complain(int status, std::string_view why) {
  tell("cubeshim: {}\n", why);
  return status;
}

}  // namespace cube::cli
