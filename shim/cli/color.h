// Colours of a command's output on a terminal, as --color, NO_COLOR and TERM=dumb require. Thread
// safety: the option is set before anything is painted.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <string_view>

namespace cube::cli {

enum class Color { good, fair, bad, strong };

// Colours of the 256-colour palette, which are the same on all terminals. Their contrast is at
// least 3.8 both on black and on white. The yellow of the basic palette is illegible on white in
// most terminals.
inline constexpr const char* k_good = "\x1b[38;5;28m";
inline constexpr const char* k_fair = "\x1b[38;5;130m";
inline constexpr const char* k_bad = "\x1b[1;38;5;160m";

// Adds --color auto|always|never.
void add_color_option(CLI::App& command);
// Returns the text, with the sequences for this colour if `stream` shows colours.
std::string painted(std::string_view text, Color color, std::FILE* stream = stdout);

// Returns the text. If a line begins with one of these words, paints the word.
struct PaintedBeginning {
  std::string_view begin;
  Color color;
};
std::string with_painted_lines(std::string_view text,
                               std::initializer_list<PaintedBeginning> beginnings);

}  // namespace cube::cli
