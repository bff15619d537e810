// The error line about a wrong word on the command line. The line names the word and the words that
// are accepted instead. Thread safety: pure functions.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace cube::cli {

// Returns the error line about the words that the parser refused.
std::string text_of_wrong_use(const CLI::App& app, const CLI::ParseError& wrong);

// For an option that `command` does not have, returns "; did you mean --prefix?", or an empty
// string if no option is similar.
std::string option_hint(const CLI::App& command, const std::string& word);

// Accepts only these words. Like whole_number, the validator has no description.
CLI::Validator one_of(std::vector<std::string> words);

// Accepts only whole numbers from `least` to `most`. The validator has no description, because a
// description would appear in the help.
CLI::Validator whole_number(std::uint64_t least, std::uint64_t most);

}  // namespace cube::cli
