// The texts of --help and --help-all, 80 columns wide. --help fits on one screen and shows the
// purpose of the command, examples, and the most important options. --help-all has all options and
// groups the settings by subject. Thread safety: pure functions.
#pragma once

#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): as the library has it
class App;
}

namespace cube::cli {

enum class HelpKind { brief, all };

// Returns the help for the subcommand of `app` that was parsed. If there is none, returns the help
// for `app`.
std::string help_text(const CLI::App& app, HelpKind kind);

}  // namespace cube::cli
