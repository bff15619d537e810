// How a command says why it cannot go on, or what it leaves out: one line. Thread safety: all of it.
#pragma once

#include <fmt/core.h>

#include <string_view>

namespace cube::cli {

// Returns `status`, for the command to end with.
inline int complain(int status, std::string_view why) {
  fmt::print(stderr, "cubeshim: {}\n", why);
  return status;
}

}  // namespace cube::cli
