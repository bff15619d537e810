#include "shim/cli/wrong_use.h"

#include <fmt/format.h>

#include <algorithm>

#include "cache/base/nearest_word.h"
#include "cache/base/words.h"
#include "shim/cli/shell/description.h"

namespace cube::cli {
namespace {

std::vector<std::string> names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto& command : describe_subcommands(app)) names.push_back(command.name);
  return names;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& names) {
  const std::string_view nearest = base::nearest_word(word, {names.begin(), names.end()});
  return nearest.empty() ? std::string() : fmt::format("; did you mean {}?", nearest);
}

std::string command_hint(const CLI::App& app, const std::string& word) {
  const auto names = names_of_commands(app);
  const std::string hint = did_you_mean(word, names);
  return hint.empty() ? fmt::format("; the commands are {}", fmt::join(names, ", ")) : hint;
}

// `text` begins with the option, as in "--count: 1 required TIMES missing".
std::string missing_value(const CLI::App& command, const std::string& text) {
  const std::string name = text.substr(0, text.find(": "));
  const CLI::Option* const option = command.get_option_no_throw(name);
  return option == nullptr
             ? text
             : fmt::format("{} needs a value: {} {}", name, name, option->get_type_name());
}

}  // namespace

std::string option_hint(const CLI::App& command, const std::string& word) {
  std::vector<std::string> names;
  for (const auto& option : describe_command(command).options)
    names.insert(names.end(), option.names.begin(), option.names.end());
  return did_you_mean(word.substr(0, word.find('=')), names);
}

std::string text_of_wrong_use(const CLI::App& app, const CLI::ParseError& wrong) {
  const auto commands = app.get_subcommands();
  const CLI::App& command = commands.empty() ? app : *commands.front();
  const std::string name = commands.empty() ? "cubeshim" : "cubeshim " + command.get_name();
  const std::string see = fmt::format("; see {} --help", name);
  const auto is = [&](CLI::ExitCodes code) {
    return wrong.get_exit_code() == static_cast<int>(code);
  };
  // A word before the command belongs to no command, so do not blame the command that follows. The
  // parser also assigns words after a wrong option and "--" to no command.
  const auto early = app.remaining(), late = command.remaining();
  if (!commands.empty() && !late.empty() && late.front().starts_with('-'))
    return fmt::format("{} is not an option of {}{}{}", late.front(), name,
                       option_hint(command, late.front()), see);
  if (!early.empty() && !early.front().starts_with('-'))
    return fmt::format("{} is not a command{}", early.front(), command_hint(app, early.front())) +
           see;
  if (!early.empty()) {
    const std::string hint = option_hint(app, early.front());
    return fmt::format("{} is not an option of cubeshim{}; see cubeshim --help", early.front(),
                       hint.empty() ? "; the options of a command come after its name" : hint);
  }
  if (commands.empty())
    return fmt::format("a command is missing; the commands are {}{}",
                       fmt::join(names_of_commands(app), ", "), see);
  if (is(CLI::ExitCodes::ExtrasError) && !late.empty())
    return fmt::format("{} is one word too many for {}{}", late.front(), name, see);
  if (is(CLI::ExitCodes::ArgumentMismatch)) return missing_value(command, wrong.what()) + see;
  std::string text = wrong.what();
  // "--interval: "x" is not ..."
  if (const auto colon = text.find(": \"");
      is(CLI::ExitCodes::ValidationError) && colon != std::string::npos)
    text.erase(colon, 1);
  return text + see;
}

CLI::Validator one_of(std::vector<std::string> words) {
  return CLI::Validator(
      [words = std::move(words)](const std::string& text) {
        if (std::ranges::find(words, text) != words.end()) return std::string();
        return fmt::format("\"{}\" is not usable: it takes {} or {}{}", text,
                           fmt::join(words.begin(), words.end() - 1, ", "), words.back(),
                           did_you_mean(text, words));
      },
      "");
}

CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
  return CLI::Validator(
      [least, most](const std::string& text) {
        const auto number = base::number_of(text);
        const bool is_well = number && *number >= least && *number <= most;
        return is_well ? std::string()
                       : fmt::format("\"{}\" is not usable: it takes a whole number from {} to {}",
                                     text, least, most);
      },
      "");
}

}  // namespace cube::cli
