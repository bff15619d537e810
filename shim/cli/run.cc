// cubeshim run: the environment that the library wants, and then the program.
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

#include "cache/base/error_text.h"
#include "shim/cli/commands.h"
#include "shim/cli/complaint.h"
#include "shim/cli/elf_file.h"
#include "shim/cli/library.h"
#include "shim/cli/program_file.h"
#include "shim/cli/run_program.h"
#include "shim/cli/settings.h"
#include "shim/python_site.h"

namespace cube::cli {

int check_run(Run& run) {
  if (run.program.empty()) {
    tell("cubeshim: no program to run: give it after the options\n");
    return 2;
  }
  if (run.program.front().starts_with('-')) {
    tell("cubeshim: {} is not an option; see cubeshim run --help\n", run.program.front());
    return 2;
  }
  const auto parsed = run.settings.parse();
  for (const auto& error : parsed.errors) tell("cubeshim: {}\n", error);
  if (!parsed.errors.empty()) return 2;
  if (run.needs_prefix && parsed.config.prefixes.empty()) {
    tell("cubeshim: no directory to serve: give --prefix DIRECTORY, or set CUBESHIM_PREFIXES\n");
    return 2;
  }
  run.announces = parsed.config.announce;
  std::string& library = run.library;
  if (library.empty()) library = find_library();
  if (library.empty() || access(library.c_str(), R_OK) != 0) {
    tell("cubeshim: cannot read the library {}: give --library PATH of libcubeshim.so\n",
         library.empty() ? "libcubeshim.so" : library);
    return 2;
  }
  if (library.find_first_of(" :") != std::string::npos) {
    tell("cubeshim: {} cannot be preloaded: the loader takes spaces and colons for ends of names\n", library);
    return 2;
  }
  return 0;
}

int exec_program(const Run& run) {
  const std::string& library = run.library;
  for (const auto& [variable, value] : run.settings.given()) setenv(variable.c_str(), value.c_str(), 1);
  // A job of its own, also where this command runs inside another.
  unsetenv("CUBESHIM_JOB");
  // musl's loader would end the program: the library needs symbols of glibc.
  const std::string executable = executable_of(run.program.front());
  const auto elf = read_elf(executable);
  const bool is_preloaded = !elf || !elf->is_musl();
  if (is_preloaded) {
    put_in_front("LD_PRELOAD", library);
  } else {
    tell("cubeshim: {} runs with musl ({}), the library only with glibc: its files are not served\n", executable,
         elf->interpreter);
  }
  if (run.is_not_announced) setenv("CUBESHIM_ANNOUNCE", "0", 1);
  if (run.announces && !run.is_not_announced && is_preloaded) {
    // The library does so itself where the program is a Python; a program that embeds one needs it from here.
    const std::string site = shim::python_site::find_beside(library.c_str());
    if (!site.empty()) shim::python_site::add(site);
  }

  std::vector<char*> arguments;
  arguments.reserve(run.program.size() + 1);
  for (const auto& word : run.program) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments.front(), arguments.data());
  const int error = errno;
  tell("cubeshim: cannot run {}: {}\n", run.program.front(), base::text_of_error(error));
  return error == ENOENT ? 127 : 126;
}

void drop_separator_of_run(std::vector<std::string>& words) {
  if (words.empty() || (words.front() != "run" && words.front() != "profile")) return;
  std::size_t i = 1;
  while (i < words.size() && words[i].starts_with('-') && words[i] != "--") {
    // Every option but these takes a value: of its own word, or the next.
    const bool is_alone = words[i] == "-h" || words[i] == "--help" || words[i] == "--no-announce" ||
                          (words.front() == "profile" && (words[i] == "--observe" || words[i] == "--all")) ||
                          words[i].find('=') != std::string::npos || (words[i].starts_with("-p") && words[i].size() > 2);
    i += is_alone ? 1 : 2;
  }
  if (i < words.size() && words[i] == "--") words.erase(words.begin() + static_cast<long>(i));
}

void add_run(CLI::App& app, int& status) {
  CLI::App* const command = app.add_subcommand("run", "Run a program whose files under the prefixes are served");
  const auto options = std::make_shared<Run>();
  options->settings.add_to(*command, Settings::Which::all);
  command->add_option("--library", options->library, "libcubeshim.so, if it is not the one that came with this command")
      ->type_name("PATH");
  command->add_flag("--no-announce", options->is_not_announced, "The same as --announce 0");
  command->footer("Usage: cubeshim run [OPTIONS] [--] PROGRAM [ARGUMENTS]");
  // From the first word that is no option of ours, everything is the program's.
  command->prefix_command();
  command->callback([command, options, &status] {
    options->program = command->remaining();
    status = check_run(*options);
    if (status == 0) status = exec_program(*options);
  });
}

}  // namespace cube::cli
