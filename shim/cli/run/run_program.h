// A program in the environment that the library wants.
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
  base::Config config;  // as check_run has found it
};

// 0, or the status to end with, after a line that says why.
int check_run(Run& run);
// Runs the program in a child, this process being the first of its job, until it ends. Writes the
// report of the job unless the program could do so itself, and takes the region away when its last
// process has gone. The status as wait has it.
int run_program(const Run& run, bool keeps_stdout);

}  // namespace cube::cli
