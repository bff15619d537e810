#include "shim/cli/wrong_use.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "shim/cli/shell/description.h"

namespace cube::cli {
namespace {

std::string names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto& command : describe_subcommands(app)) names.push_back(command.name);
  return fmt::format("the commands are {}", fmt::join(names, ", "));
}

// "--count: 1 required TIMES missing" and the like begin with the option.
std::string missing_value(const CLI::App& command, const std::string& text) {
  const std::string name = text.substr(0, text.find(": "));
  const CLI::Option* const option = command.get_option_no_throw(name);
  return option == nullptr
             ? text
             : fmt::format("{} needs a value: {} {}", name, name, option->get_type_name());
}

}  // namespace

std::string text_of_wrong_use(const CLI::App& app, const CLI::ParseError& wrong) {
  const auto commands = app.get_subcommands();
  const CLI::App& command = commands.empty() ? app : *commands.front();
  const std::string name = commands.empty() ? "cubeshim" : "cubeshim " + command.get_name();
  const std::string see = fmt::format("; see {} --help", name);
  const auto is = [&](CLI::ExitCodes code) {
    return wrong.get_exit_code() == static_cast<int>(code);
  };
  // A word before the command belongs to no command, not to the one that follows it.
  const auto early = app.remaining(), late = command.remaining();
  if (!early.empty() && !early.front().starts_with('-'))
    return fmt::format("{} is not a command; {}", early.front(), names_of_commands(app)) + see;
  if (!early.empty()) {
    return fmt::format(
        "{} is not an option of cubeshim; the options of a command come after its name; see "
        "cubeshim --help",
        early.front());
  }
  if (commands.empty())
    return fmt::format("a command is missing; {}{}", names_of_commands(app), see);
  if (is(CLI::ExitCodes::ExtrasError) && !late.empty())
    return fmt::format("{} is {} {}{}", late.front(),
                       late.front().starts_with('-') ? "not an option of" : "one word too many for",
                       name, see);
  if (is(CLI::ExitCodes::ArgumentMismatch)) return missing_value(command, wrong.what()) + see;
  std::string text = wrong.what();
  // "--interval: "x" is not ..."
  if (const auto colon = text.find(": \"");
      is(CLI::ExitCodes::ValidationError) && colon != std::string::npos)
    text.erase(colon, 1);
  return text + see;
}

CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
  return CLI::Validator(
      [least, most](const std::string& text) {
        std::uint64_t number = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
        const bool is_well = error == std::errc{} && end == text.data() + text.size() &&
                             number >= least && number <= most;
        return is_well ? std::string()
                       : fmt::format("\"{}\" is not usable: it takes a whole number from {} to {}",
                                     text, least, most);
      },
      "");
}

}  // namespace cube::cli
