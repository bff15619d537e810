// The parser's sub-commands and their options, in a plain form from which the completions and the
// man page are made: one definition for --help and for these. Hidden sub-commands and options are
// left out. Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): as the library has it
class App;
}

namespace cube::cli {

struct OptionText {
  std::vector<std::string> names;  // "-p", "--prefix"; of a positional: none
  std::string value;  // what it takes: "DIRECTORY", "virtual|real|off"; empty: it is a flag
  std::string help;
  bool is_setting = false;  // a row of config.def
  bool is_repeatable = false, is_required = false;

  // The words it takes; "ttl:" of "ttl:SECONDS". Empty: not a choice of words.
  std::vector<std::string> choices() const;
  enum class Kind { none, other, choice, directory, file };
  Kind kind() const;
};

struct CommandText {
  std::string name, help;
  std::vector<OptionText> options;
  std::vector<OptionText> positionals;
  bool runs_program = false;  // what follows the options is another program and its arguments

  // "[OPTION...] [--] PROGRAM [ARGUMENT...]"
  std::string usage() const;
};

CommandText describe_command(const CLI::App& command);
std::vector<CommandText> describe_subcommands(const CLI::App& app);

// "Show it again." of "Show it again. And more of it."
std::string first_sentence(const std::string& help);

}  // namespace cube::cli
