// For tests that run a program in a new environment: keeps the variables that switch on a
// deliberate fault (tests/house/mutants).
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

namespace cube::tests {

inline void keep_mutant(std::vector<std::string>& environment) {
  for (const std::string name : {"MUTANT_FAULT", "MUTANT_REACHED"}) {
    if (const char* value = std::getenv(name.c_str())) environment.push_back(name + "=" + value);
  }
}

}  // namespace cube::tests
