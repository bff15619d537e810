// How often a test repeats its random parts: fewer times in `make test`, more in `make test-long`
// (CUBESHIM_TEST_LONG=1). Thread safety: only reads the environment.
#pragma once

#include <cstdlib>
#include <string_view>

namespace cube::tests {

inline bool is_long_run() {
  const char* const value = std::getenv("CUBESHIM_TEST_LONG");
  return value != nullptr && std::string_view(value) == "1";
}

inline int rounds(int in_short_run, int in_long_run) {
  return is_long_run() ? in_long_run : in_short_run;
}

}  // namespace cube::tests
