// How a command says why it cannot go on, or what it leaves out: one line. Thread safety: all of
// it.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace cube::cli {

// To stderr, which may be closed or full: what the command does is not to end for that.
template <typename... Values>
void tell(fmt::format_string<Values...> text, Values&&... values) {
  const std::string line = fmt::format(text, std::forward<Values>(values)...);
  [[maybe_unused]] const auto written = std::fwrite(line.data(), 1, line.size(), stderr);
}

// Returns `status`, for the command to end with.
inline int complain(int status, std::string_view why) {
  tell("cubeshim: {}\n", why);
  return status;
}

}  // namespace cube::cli
