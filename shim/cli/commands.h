// The subcommands of `cubeshim`. Each function adds a subcommand to the parser. If the user chooses
// the subcommand, its callback stores the exit status in `status`: 0 for success, 1 for a problem
// that the output names, 2 for wrong usage.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

namespace cube::cli {

void add_run(CLI::App& app, int& status);
// Removes the `--` before the program, which the parser would misread.
void drop_separator_of_run(std::vector<std::string>& words);
void add_profile(CLI::App& app, int& status);
void add_plan(CLI::App& app, int& status);
void add_library(CLI::App& app, int& status);
void add_stats(CLI::App& app, int& status);
void add_report(CLI::App& app, int& status);
// Further exit statuses: 3 if there is no cache to load into; 128 plus the signal's number if a
// signal ended the command.
void add_warmup(CLI::App& app, int& status);
void add_top(CLI::App& app, int& status);
void add_exporter(CLI::App& app, int& status);
void add_bench(CLI::App& app, int& status);
void add_doctor(CLI::App& app, int& status);
void add_clear(CLI::App& app, int& status);
void add_pool(CLI::App& app, int& status);
void add_pack(CLI::App& app, int& status);
void add_pack_look(CLI::App& app, int& status);  // ls, cat, verify
// Further exit status: 3 if there is no cache to serve.
void add_gateway(CLI::App& app, int& status);
void add_extract(CLI::App& app, int& status);
// A hidden command: the child process of bench.
void add_read_hits(CLI::App& app, int& status);
void add_completion(CLI::App& app, int& status);
void add_docs(CLI::App& app, int& status);
// A hidden command: the man page.
void add_manual(CLI::App& app, int& status);

// Adds an option that has a value. `takes` is the name of the value in the help, such as FILE.
template <typename Value>
CLI::Option* add_value(CLI::App& command, std::string name, std::string takes, Value& value,
                       std::string help) {
  return command.add_option(std::move(name), value, std::move(help))->type_name(std::move(takes));
}

}  // namespace cube::cli
