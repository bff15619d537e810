// cubeshim completion bash|zsh|fish: prints the completion script of a shell. `make install` puts
// the three scripts into the shells' folders.
#include "shim/cli/shell/completion.h"

#include <fmt/core.h>

#include <memory>

#include "shim/cli/commands.h"
#include "shim/cli/wrong_use.h"

namespace cube::cli {

void add_completion(CLI::App& app, int& status) {
  CLI::App* const command =
      app.add_subcommand("completion", "Print the completion script of bash, zsh or fish");
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(one_of({"bash", "zsh", "fish"}));
  command->callback([&app, shell, &status] {
    const auto make = *shell == "bash"  ? bash_completion
                      : *shell == "zsh" ? zsh_completion
                                        : fish_completion;
    fmt::print("{}", make(describe_command(app), describe_subcommands(app)));
    status = 0;
  });
}

}  // namespace cube::cli
