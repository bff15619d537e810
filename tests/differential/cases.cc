#include "tests/differential/cases.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace cube::differ {

std::string to_text(const Case& c) {
  std::string text = "case " + c.name + "\n";
  for (const Run& run : c.runs) text += "run " + std::string(name_of(run.pass)) + "\n" + to_text(run.sequence);
  return text + "end\n";
}

std::vector<Case> read_cases(const std::string& file) {
  std::ifstream text(file);
  std::vector<Case> cases;
  bool is_open = false;
  unsigned number = 0;
  const auto wrong = [&](const char* what) {
    std::fprintf(stderr, "%s:%u: %s\n", file.c_str(), number, what);
    std::exit(2);
  };
  if (!text) wrong("cannot be read");
  for (std::string line; std::getline(text, line);) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    if (line.starts_with("case ")) {
      if (is_open) wrong("the case before has no end");
      cases.push_back({line.substr(5), {}});
      is_open = true;
    } else if (!is_open) {
      wrong("not in a case");
    } else if (line == "end") {
      if (cases.back().runs.empty()) wrong("a case without a run");
      is_open = false;
    } else if (line.starts_with("run ")) {
      const std::string pass = line.substr(4);
      if (pass != "cold" && pass != "warm" && pass != "kept") wrong("a run is cold, warm or kept");
      cases.back().runs.push_back({pass == "cold" ? Pass::cold : pass == "warm" ? Pass::warm : Pass::kept, {}});
    } else {
      const auto op = parse_op(line);
      if (!op || cases.back().runs.empty()) wrong("no operation of ops.def");
      cases.back().runs.back().sequence.push_back(*op);
    }
  }
  if (is_open) wrong("the last case has no end");
  return cases;
}

}  // namespace cube::differ
