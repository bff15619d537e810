#include "shim/cli/shell/description.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "shim/cli/settings.h"

namespace cube::cli {
namespace {

// Returns the row of config.def whose option has this name, or null if there is none.
const base::ConfigRow* setting_of(const std::string& option) {
  const auto& rows = base::config_rows();
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const base::ConfigRow& r) {
    return option_name(r.variable) == option;
  });
  return row == rows.end() ? nullptr : &*row;
}

std::string brief_of(const OptionText& option) {
  const base::ConfigRow* const row =
      option.is_setting && !option.names.empty() ? setting_of(option.names.back()) : nullptr;
  if (row == nullptr) return first_sentence(option.help);
  const std::string sentence = first_sentence(std::string(row->help));
  return row->default_text.empty() ? sentence
                                   : fmt::format("{} (default: {})", sentence, row->default_text);
}

OptionText describe_option(const CLI::Option& option) {
  OptionText text;
  for (const auto& name : option.get_snames()) text.names.push_back("-" + name);
  for (const auto& name : option.get_lnames()) text.names.push_back("--" + name);
  if (option.get_positional()) text.names.clear();
  text.value = option.get_positional()                ? option.get_name(true)
               : option.get_items_expected_max() == 0 ? ""
                                                      : option.get_type_name();
  text.help = option.get_description();
  text.is_setting = option.get_group() == Settings::k_group;
  text.is_repeatable = option.get_items_expected_max() > 1;
  text.is_required = option.get_required();
  text.brief = brief_of(text);
  return text;
}

}  // namespace

std::vector<std::string> OptionText::choices() const {
  std::vector<std::string> words;
  if (value.find('|') == std::string::npos) return words;
  for (std::size_t at = 0; at <= value.size();) {
    const std::size_t end = std::min(value.find('|', at), value.size());
    const auto begin = value.begin() + static_cast<long>(at);
    const auto variable = std::find_if(begin, value.begin() + static_cast<long>(end),
                                       [](unsigned char c) { return std::isupper(c) != 0; });
    words.emplace_back(begin, variable);
    at = end + 1;
  }
  return words;
}

OptionText::Kind OptionText::kind() const {
  if (value.empty()) return Kind::none;
  if (value.find('|') != std::string::npos) return Kind::choice;
  if (value == "DIRECTORY") return Kind::directory;
  return value == "FILE" || value == "PATH" ? Kind::file : Kind::other;
}

std::string CommandText::usage() const {
  std::string text = "[OPTION...]";
  for (const auto& positional : positionals) {
    const std::string value = positional.value + (positional.is_repeatable ? "..." : "");
    text += positional.is_required ? " " + value : " [" + value + "]";
  }
  return runs_program ? text + " [--] PROGRAM [ARGUMENT...]" : text;
}

CommandText describe_command(const CLI::App& command) {
  CommandText text;
  text.name = command.get_name();
  text.help = command.get_description();
  text.runs_program = command.get_prefix_command();
  for (const CLI::Option* const option : command.get_options()) {
    if (option->get_group().empty()) continue;
    (option->get_positional() ? text.positionals : text.options)
        .push_back(describe_option(*option));
  }
  return text;
}

std::vector<CommandText> describe_subcommands(const CLI::App& app) {
  std::vector<CommandText> commands;
  for (const CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_group().empty()) commands.push_back(describe_command(*command));
  }
  return commands;
}

std::string first_sentence(const std::string& help) {
  const std::size_t end = help.find(". ");
  std::string sentence = end == std::string::npos ? help : help.substr(0, end);
  if (sentence.ends_with('.')) sentence.pop_back();
  return sentence;
}

}  // namespace cube::cli
