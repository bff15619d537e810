// cubeshim profile: runs a program with the profiler on, and shows which code makes which calls.
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "cache/base/error_text.h"
#include "shim/cli/commands.h"
#include "shim/cli/complaint.h"
#include "shim/cli/profile/profile_page.h"
#include "shim/cli/profile/profile_report.h"
#include "shim/cli/profile/raw_files.h"
#include "shim/cli/run/program_child.h"
#include "shim/cli/run/run_program.h"
#include "shim/cli/shell/wrap.h"
#include "shim/cli/text_file.h"
#include "shim/cli/wrong_use.h"

namespace cube::cli {
namespace {

struct ProfileCommand {
  Run run;
  std::string directory = k_profile_directory;
  std::vector<std::string> raw_files;  // if not empty, read these and run nothing
  unsigned every = 16;
  bool observes = false, has_all = false;
};

int show(const ProfileCommand& command, const std::vector<std::string>& paths, bool writes) {
  std::vector<RawFile> files;
  if (const std::string wrong = read_raw_files(paths, files); !wrong.empty())
    return complain(1, wrong);
  const Profile profile = make_profile(files);
  if (profile.sites.empty())
    return complain(1,
                    "nothing was recorded: no process called a file below the prefixes, or all of "
                    "them were killed");
  const auto patterns = find_patterns(profile);
  print_fitted(profile_as_table(profile, patterns));
  if (!writes) return 0;
  const std::string text = profile_as_json(profile, patterns),
                    json = command.directory + "/profile.json",
                    folded = command.directory + "/stacks.folded",
                    page = command.directory + "/profile.html";
  const std::pair<const std::string&, std::string> outputs[] = {
      {json, text}, {folded, profile_as_folded(profile)}, {page, profile_as_page(text)}};
  for (const auto& [path, content] : outputs) {
    if (const std::string trouble = write_text_file(path, content); !trouble.empty())
      return complain(1, trouble);
  }
  print_fitted(
      fmt::format("\nwritten: {} for a browser, {} and {} for programs\n", page, json, folded));
  return 0;
}

int profile(ProfileCommand& command) {
  const bool writes = command.raw_files.empty() || command.directory != ProfileCommand().directory;
  if (writes && mkdir(command.directory.c_str(), 0755) != 0 && errno != EEXIST)
    return complain(
        1, fmt::format("cannot make {}: {}", command.directory, base::text_of_error(errno)));
  if (!command.raw_files.empty()) return show(command, command.raw_files, writes);
  command.run.needs_prefix = !command.has_all;
  if (const int wrong = check_run(command.run); wrong != 0) return wrong;
  const std::unique_ptr<char, decltype(&std::free)> absolute(
      realpath(command.directory.c_str(), nullptr), &std::free);
  if (absolute == nullptr)
    return complain(
        1, fmt::format("cannot use {}: {}", command.directory, base::text_of_error(errno)));
  if (std::string_view(absolute.get()).find("%p") != std::string_view::npos)
    return complain(
        2, fmt::format("--out {}: %p in the name of a directory stands for the number of a process",
                       absolute.get()));
  for (const auto& path : raw_files_in(command.directory)) unlink(path.c_str());
  setenv("CUBESHIM_PROFILE", fmt::format("{}/{}%p", absolute.get(), k_raw_name).c_str(), 1);
  setenv("CUBESHIM_PROFILE_EVERY", std::to_string(command.every).c_str(), 1);
  setenv("CUBESHIM_PROFILE_ALL", command.has_all ? "1" : "0", 1);
  setenv("CUBESHIM_OBSERVE", command.observes ? "1" : "0", 1);
  const int status = shell_status(run_program(command.run, /*keeps_stdout=*/true));
  const int shown = show(command, raw_files_in(command.directory), true);
  return status != 0 ? status : shown;
}

}  // namespace

void add_profile(CLI::App& app, int& status) {
  CLI::App* const command = app.add_subcommand(
      "profile", "Run a program, and show which code reads files, and at what cost");
  const auto options = std::make_shared<ProfileCommand>();
  command->add_flag("--observe", options->observes,
                    "Serve nothing: watch the program as it is without a cache");
  command->add_flag("--all", options->has_all,
                    "Watch all files, not only those below the prefixes");
  add_value(*command, "--every", "N", options->every,
            "Walk the native stack of one call in this many; the default is 16")
      ->check(whole_number(1, 256));
  add_value(
      *command, "--out", "DIRECTORY", options->directory,
      "Where profile.json, stacks.folded and the raw files go; the default is cubeshim-profile");
  add_value(*command, "--read", "FILE", options->raw_files, "Run nothing: show these raw files");
  add_run_options(*command, options->run, Settings::Which::but_for_profile);
  command->callback([command, options, &status] {
    options->run.program = command->remaining();
    status = profile(*options);
  });
}

}  // namespace cube::cli
