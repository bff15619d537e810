// Runs a program in the environment that the library needs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "shim/cli/settings.h"

namespace cube::cli {

struct Run {
  const CLI::App* command = nullptr;  // the subcommand that was given; set by add_run_options
  Settings settings;
  std::string library;
  std::vector<std::string> program;
  bool is_not_announced = false;
  bool needs_prefix = true;
  base::Config config;  // set by check_run
};

// Adds the options that run and profile have in common. The rest of the command line is
// the program.
void add_run_options(CLI::App& command, Run& run, Settings::Which settings);
// Returns 0. On failure, prints the reason and returns the exit status.
int check_run(Run& run);
// Runs the program in a child until it ends; this process is the first of its job. Writes the
// report of the job unless the program could do so itself, and removes the region when its last
// process has gone. Returns the status of wait().
int run_program(const Run& run, bool keeps_stdout);

}  // namespace cube::cli
