// The totals of one run of parity_tests; main prints them. Thread safety: only the main thread.
#pragma once

#include <cstddef>
#include <string>

namespace cube::parity {

struct Totals {
  std::string mode = "kernel";  // kernel, virtual or real
  std::string base;             // holds plain/ and cover/
  std::size_t tests = 0, skipped = 0, compared = 0, equal = 0, warmed = 0;
  std::size_t shared = 0;  // files that another node had before the program
};
Totals& totals();

}  // namespace cube::parity
