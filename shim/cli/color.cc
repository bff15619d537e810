#include "shim/cli/color.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>

#include "shim/cli/commands.h"
#include "shim/cli/wrong_use.h"

namespace cube::cli {
namespace {

std::string g_color_option = "auto";

bool shows_colors(std::FILE* stream) {
  if (g_color_option != "auto") return g_color_option == "always";
  const char* const no_color = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  const bool is_dumb = terminal == nullptr || std::string_view(terminal) == "dumb";
  return (no_color == nullptr || *no_color == '\0') && !is_dumb && isatty(fileno(stream)) != 0;
}

}  // namespace

void add_color_option(CLI::App& command) {
  add_value(command, "--color", "auto|always|never", g_color_option,
            "Colours: always, never, or if the output is a terminal and NO_COLOR is not set; "
            "the default is auto")
      ->check(one_of({"auto", "always", "never"}));
}

std::string painted(std::string_view text, Color color, std::FILE* stream) {
  if (!shows_colors(stream)) return std::string(text);
  const char* const begin = color == Color::good   ? k_good
                            : color == Color::fair ? k_fair
                            : color == Color::bad  ? k_bad
                                                   : "\x1b[1m";
  return fmt::format("{}{}\x1b[0m", begin, text);
}

std::string with_painted_lines(std::string_view text,
                               std::initializer_list<PaintedBeginning> beginnings) {
  std::string result;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n') + 1);
    if (line.empty()) line = text;
    text.remove_prefix(line.size());
    for (const PaintedBeginning& beginning : beginnings) {
      if (!line.starts_with(beginning.begin)) continue;
      result += painted(beginning.begin, beginning.color);
      line.remove_prefix(beginning.begin.size());
      break;
    }
    result += line;
  }
  return result;
}

}  // namespace cube::cli
