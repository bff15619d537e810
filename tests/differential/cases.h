// Reads and writes cases as text. A failing seed is printed as a case, and regressions.txt contains
// cases.
//
//   case <name>
//   run cold|warm|kept [packed|entered]
//                          a sequence; several of them are played one after another
//                          in one process
//   <operation> <arguments>
//   end
#pragma once

#include <string>
#include <vector>

#include "tests/differential/arena.h"

namespace cube::differ {

struct Case {
  std::string name;
  std::vector<Run> runs;
};
std::string to_text(const Case& c);
// Ends the process with a message if a line cannot be understood.
std::vector<Case> read_cases(const std::string& file);

}  // namespace cube::differ
