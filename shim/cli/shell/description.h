// The parser's subcommands and options in a plain form. The completions, the man page and --help
// are generated from this form. Hidden subcommands and options are omitted. Thread safety: pure
// functions.
#pragma once

#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): as the library has it
class App;
}

namespace cube::cli {

struct OptionText {
  std::vector<std::string> names;  // "-p", "--prefix"; empty for a positional
  std::string value;               // the value: "DIRECTORY", "virtual|real|off"; empty for a flag
  std::string help;
  std::string brief;        // the first sentence of `help`, with the default of a setting
  bool is_setting = false;  // a row of config.def
  bool is_repeatable = false, is_required = false;

  // Returns the values to choose from, with "ttl:" for "ttl:SECONDS". Empty if the value is not a
  // choice.
  std::vector<std::string> choices() const;
  enum class Kind { none, other, choice, directory, file };
  Kind kind() const;
};

struct CommandText {
  std::string name, help;
  std::vector<OptionText> options;
  std::vector<OptionText> positionals;
  bool runs_program = false;  // another program and its arguments follow the options

  // Returns a text such as "[OPTION...] [--] PROGRAM [ARGUMENT...]".
  std::string usage() const;
};

CommandText describe_command(const CLI::App& command);
std::vector<CommandText> describe_subcommands(const CLI::App& app);

// Returns "Show it again." for "Show it again. And more of it.".
std::string first_sentence(const std::string& help);

}  // namespace cube::cli
