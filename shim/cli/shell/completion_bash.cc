#include <fmt/format.h>

#include "shim/cli/shell/completion.h"

namespace cube::cli {
namespace {

constexpr const char* k_script_head =
    R"(# bash completion of cubeshim, made by `cubeshim completion bash`.

_cubeshim_paths() {  # -f: files, -d: directories
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen "$1" -- "$2")
}

_cubeshim_words() {
  mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2")
  # A word that wants more after it.
  if [[ ${#COMPREPLY[@]} == 1 && $COMPREPLY == *: ]]; then compopt -o nospace 2>/dev/null; fi
}

_cubeshim() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local first=1 command= options= with_value= rest= i
  COMPREPLY=()
  # "--mode=real" comes as three words.
  if [[ $word == = ]]; then
    word=
  elif [[ $previous == = ]]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  while ((first < COMP_CWORD)) && [[ ${COMP_WORDS[first]} == -* ]]; do ((first += 1)); done
  if ((first < COMP_CWORD)); then command=${COMP_WORDS[first]}; fi
  case $command in
)";

// The part of the script between the cases of the commands and the cases of the options. The words
// after the program belong to the program.
constexpr const char* k_middle = R"(    *) return ;;
  esac
  if [[ $rest == program ]]; then
    for ((i = first + 1; i < COMP_CWORD; i++)); do
      case ${COMP_WORDS[i]} in
        --) ((i += 1)) && break ;;
        -*)
          if [[ ${COMP_WORDS[i + 1]} == = ]]; then
            ((i += 2))
          elif [[ " $with_value " == *" ${COMP_WORDS[i]} "* ]]; then
            ((i += 1))
          fi
          ;;
        *) break ;;
      esac
    done
    if ((i < COMP_CWORD)); then
      if declare -F _command_offset >/dev/null; then _command_offset "$i"
      else _cubeshim_paths -f "$word"; fi
      return
    fi
  fi
  case "$command $previous" in
)";

constexpr const char* k_script_tail = R"(  esac
  if [[ $word == -* ]]; then
    _cubeshim_words "$options" "$word"
    return
  fi
  case $rest in
    words\ *) _cubeshim_words "${rest#words }" "$word" ;;
    files) _cubeshim_paths -f "$word" ;;
    program) mapfile -t COMPREPLY < <(compgen -c -- "$word" | sort -u) ;;
  esac
}

complete -F _cubeshim cubeshim
)";

std::string joined(const std::vector<std::string>& words, const char* between) {
  return fmt::format("{}", fmt::join(words, between));
}

std::string values_of(const CommandText& command) {
  std::string text;
  for (const auto& option : command.options) {
    std::string action;
    switch (option.kind()) {
      case OptionText::Kind::none: continue;
      case OptionText::Kind::choice:
        action = fmt::format("_cubeshim_words '{}' \"$word\"; ", joined(option.choices(), " "));
        break;
      case OptionText::Kind::directory: action = "_cubeshim_paths -d \"$word\"; "; break;
      case OptionText::Kind::file: action = "_cubeshim_paths -f \"$word\"; "; break;
      case OptionText::Kind::other: break;
    }
    std::string patterns;
    for (const auto& name : option.names)
      patterns += fmt::format("{}'{} {}'", patterns.empty() ? "" : "|", command.name, name);
    text += fmt::format("    {}) {}return ;;\n", patterns, action);
  }
  return text;
}

std::string case_of(const CommandText& command, const std::string& rest) {
  std::vector<std::string> all, with_value;
  for (const auto& option : command.options) {
    all.insert(all.end(), option.names.begin(), option.names.end());
    if (!option.value.empty())
      with_value.insert(with_value.end(), option.names.begin(), option.names.end());
  }
  return fmt::format("    '{}')\n      options='{}'\n      with_value='{}' rest='{}'\n      ;;\n",
                     command.name, joined(all, " "), joined(with_value, " "), rest);
}

}  // namespace

std::string bash_completion(const CommandText& common, const std::vector<CommandText>& commands) {
  CommandText first = common;
  first.name.clear();
  std::vector<std::string> names;
  names.reserve(commands.size());
  for (const auto& command : commands) names.push_back(command.name);
  std::string text = k_script_head + case_of(first, "words " + joined(names, " "));
  for (const auto& command : commands)
    text += case_of(command, command.runs_program          ? "program"
                             : command.positionals.empty() ? ""
                                                           : "files");
  text += k_middle;
  for (const auto& command : commands) text += values_of(command);
  return text + k_script_tail;
}

}  // namespace cube::cli
