// The environment that the library wants, and then the program in the place of this process.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "shim/cli/settings.h"

namespace cube::cli {

struct Run {
  Settings settings;
  std::string library;
  std::vector<std::string> program;
  bool is_not_announced = false;
  bool needs_prefix = true;
  bool announces = false;  // as check_run has found
};

// 0, or the status to end with, after a line that says why.
int check_run(Run& run);
// Returns only where the program cannot be started.
int exec_program(const Run& run);

}  // namespace cube::cli
