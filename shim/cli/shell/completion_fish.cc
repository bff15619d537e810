#include <fmt/format.h>

#include "shim/cli/shell/completion.h"

namespace cube::cli {
namespace {

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

std::string fish_value_of(const OptionText& option) {
  switch (option.kind()) {
    case OptionText::Kind::none: return " -f";
    case OptionText::Kind::choice:
      return fmt::format(" -x -a '{}'", fmt::join(option.choices(), " "));
    case OptionText::Kind::directory: return " -x -a '(__fish_complete_directories)'";
    case OptionText::Kind::file: return " -r -F";
    case OptionText::Kind::other: return " -x";
  }
  return {};
}

std::string option_lines(const CommandText& command, const std::string& condition) {
  std::string text;
  for (const auto& option : command.options) {
    text += fmt::format("complete -c cubeshim -n {}", quoted(condition));
    for (const auto& name : option.names) {
      const bool is_long = name.starts_with("--");
      text += fmt::format(" {} {}", is_long ? "-l" : "-s", name.substr(is_long ? 2 : 1));
    }
    text += fmt::format("{} -d {}\n", fish_value_of(option), quoted(first_sentence(option.help)));
  }
  return text;
}

}  // namespace

std::string fish_completion(const CommandText& common, const std::vector<CommandText>& commands) {
  std::string text = "# fish completion of cubeshim, made by `cubeshim completion fish`.\n\n";
  text += option_lines(common, "__fish_use_subcommand");
  for (const auto& command : commands) {
    text += fmt::format("complete -c cubeshim -n __fish_use_subcommand -f -a {} -d {}\n",
                        command.name, quoted(command.help));
    const std::string here = "__fish_seen_subcommand_from " + command.name;
    text += option_lines(command, here);
    if (command.runs_program) {
      std::string with_value;
      for (const auto& option : command.options) {
        if (!option.value.empty()) with_value += fmt::format(" {}", fmt::join(option.names, " "));
      }
      text += fmt::format(
          "complete -c cubeshim -n {} -x -a '(__fish_complete_subcommand --fcs-skip=2{})'\n",
          quoted(here), with_value);
    } else if (command.positionals.empty()) {
      text += fmt::format("complete -c cubeshim -n {} -f\n", quoted(here));
    }
  }
  return text;
}

}  // namespace cube::cli
