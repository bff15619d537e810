// The texts of --help and --help-all, 80 columns wide. --help fits on one screen: the purpose of
// the command, examples, and the options that matter. --help-all has all options; the settings
// among them are grouped by subject. Thread safety: pure functions.
#pragma once

#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): as the library has it
class App;
}

namespace cube::cli {

enum class HelpKind { brief, all };

// Help on the subcommand of `app` that was parsed, or on `app` itself if none was.
std::string help_text(const CLI::App& app, HelpKind kind);

}  // namespace cube::cli
