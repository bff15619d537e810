// Runs a program in the environment that the library needs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "shim/cli/settings.h"

namespace cube::cli {

struct Run {
  const CLI::App* command = nullptr;  // the subcommand; set by add_run_options
  Settings settings;
  std::string library;
  std::vector<std::string> program;
  bool is_not_announced = false;
  bool needs_prefix = true;
  base::Config config;  // set by check_run
};

// Adds the options that run and profile have in common. The words after the options are the
// program.
void add_run_options(CLI::App& command, Run& run, Settings::Which settings);
// Returns 0. On failure, prints the reason and returns the exit status.
int check_run(Run& run);
// Runs the program in a child and waits for its end. This process is the first process of the job.
// Writes the report of the job if the program has not written it. Removes the region after its last
// process has left. Returns the status of wait().
int run_program(const Run& run, bool keeps_stdout);

}  // namespace cube::cli
