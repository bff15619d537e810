// The one line about wrong words on the command line: it names the word, and what is accepted
// instead. Thread safety: pure functions.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace cube::cli {

// The line about words that the parser refused.
std::string text_of_wrong_use(const CLI::App& app, const CLI::ParseError& wrong);

// "; did you mean --prefix?" for an option that `command` does not have; empty: none is similar.
std::string option_hint(const CLI::App& command, const std::string& word);

// Refuses everything except these words. Like whole_number, it has no description.
CLI::Validator one_of(std::vector<std::string> words);

// Refuses everything except whole numbers from `least` to `most`. It has no description, because
// that would appear in the help.
CLI::Validator whole_number(std::uint64_t least, std::uint64_t most);

}  // namespace cube::cli
