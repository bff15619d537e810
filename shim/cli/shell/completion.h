// Completion scripts for shells, generated from the parser's options (description.h). Thread
// safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "shim/cli/shell/description.h"

namespace cube::cli {

// `common` has the options before a subcommand.
std::string bash_completion(const CommandText& common, const std::vector<CommandText>& commands);
std::string zsh_completion(const CommandText& common, const std::vector<CommandText>& commands);
std::string fish_completion(const CommandText& common, const std::vector<CommandText>& commands);

}  // namespace cube::cli
