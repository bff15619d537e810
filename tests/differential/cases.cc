#include "tests/differential/cases.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace cube::differ {

namespace {

const char* suffix(Kind kind) {
  return kind == Kind::packed ? " packed" : kind == Kind::entered ? " entered" : "";
}

std::optional<Run> parse_run(std::string_view line) {
  for (const Pass pass : {Pass::cold, Pass::warm, Pass::kept}) {
    for (const Kind kind : {Kind::usual, Kind::packed, Kind::entered}) {
      if (line == "run " + std::string(name_of(pass)) + suffix(kind)) return Run{pass, {}, kind};
    }
  }
  return std::nullopt;
}

// Sets the kind of a run without "packed" or "entered", which follows from its operations.
void name_outsider(Case& c) {
  for (Run& run : c.runs) {
    const auto is_outsiders = [](const Op& op) { return op_kinds()[op.kind].group == 'A'; };
    if (run.kind == Kind::usual && std::ranges::any_of(run.sequence, is_outsiders))
      run.kind = Kind::outsider;
  }
}

}  // namespace

std::string to_text(const Case& c) {
  std::string text = "case " + c.name + "\n";
  for (const Run& run : c.runs)
    text +=
        "run " + std::string(name_of(run.pass)) + suffix(run.kind) + "\n" + to_text(run.sequence);
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
      name_outsider(cases.back());
      is_open = false;
    } else if (line.starts_with("run ")) {
      const auto run = parse_run(line);
      if (!run) wrong("a run is cold, warm or kept, and maybe packed or entered");
      cases.back().runs.push_back(*run);
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
