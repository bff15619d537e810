// The one line about a wrong word on the command line: names the word, and what is accepted
// instead. Thread safety: pure functions.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace cube::cli {

// Returns the line about the words that the parser refused.
std::string text_of_wrong_use(const CLI::App& app, const CLI::ParseError& wrong);

// "; did you mean --prefix?" for an option that `command` does not have; empty if none is similar.
std::string option_hint(const CLI::App& command, const std::string& word);

// Accepts only these words. Like whole_number, it has no description.
CLI::Validator one_of(std::vector<std::string> words);

// Accepts only whole numbers from `least` to `most`. It has no description, because that would
// appear in the help.
CLI::Validator whole_number(std::uint64_t least, std::uint64_t most);

}  // namespace cube::cli
