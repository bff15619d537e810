#include <fmt/format.h>

#include "shim/cli/shell/completion.h"

namespace cube::cli {
namespace {

// Escapes a text for use in '...[...]' and '...:...'.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c;
    if (c == '\'') result += "\\''";
  }
  return result;
}

std::string zsh_value_of(const OptionText& option) {
  std::string action = " ";
  switch (option.kind()) {
    case OptionText::Kind::none: return {};
    case OptionText::Kind::choice:
      action = fmt::format("({})", fmt::join(option.choices(), " "));
      break;
    case OptionText::Kind::directory: action = "_files -/"; break;
    case OptionText::Kind::file: action = "_files"; break;
    case OptionText::Kind::other: break;
  }
  return fmt::format(":{}:{}", escaped(option.value), escaped(action));
}

// Returns a line of _arguments for each name of an option.
std::string option_lines(const CommandText& command, const char* indent) {
  std::string text;
  for (const auto& option : command.options) {
    for (const auto& name : option.names) {
      const char* const sign = option.value.empty() ? "" : name.starts_with("--") ? "=" : "+";
      const auto head = option.is_repeatable ? std::string("*")
                                             : fmt::format("({})", fmt::join(option.names, " "));
      text += fmt::format("{}'{}{}{}[{}]{}' \\\n", indent, head, name, sign,
                          escaped(first_sentence(option.help)), zsh_value_of(option));
    }
  }
  return text;
}

}  // namespace

std::string zsh_completion(const CommandText& common, const std::vector<CommandText>& commands) {
  std::string text =
      "#compdef cubeshim\n# zsh completion of cubeshim, made by `cubeshim completion "
      "zsh`.\n\n_cubeshim() {\n"
      "  local curcontext=$curcontext state line\n  typeset -A opt_args\n  _arguments -C \\\n";
  text += option_lines(common, "    ");
  text +=
      "    '1: :->command' \\\n    '*:: :->words' && return\n  if [[ $state == command ]]; then\n  "
      "  local -a commands=(\n";
  for (const auto& command : commands)
    text += fmt::format("      '{}:{}'\n", command.name, escaped(command.help));
  text += "    )\n    _describe command commands\n    return\n  fi\n  case $words[1] in\n";
  for (const auto& command : commands) {
    text += fmt::format("    {})\n      _arguments \\\n{}", command.name,
                        option_lines(command, "        "));
    if (command.runs_program) {
      text += "        '(-)1:program:_command_names -e' \\\n        '*::arguments:_normal'\n";
    } else {
      text += command.positionals.empty() ? "        && return\n" : "        '*:path:_files'\n";
    }
    text += "      ;;\n";
  }
  // The script works both in a folder of completion functions and through `source`.
  return text +
         "  esac\n}\n\nif [[ $funcstack[1] == _cubeshim ]]; then _cubeshim \"$@\"; else compdef "
         "_cubeshim cubeshim; fi\n";
}

}  // namespace cube::cli
