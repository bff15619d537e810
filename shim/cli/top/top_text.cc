#include "shim/cli/top/top_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "cache/base/sys.h"

namespace cube::cli {

std::string printed(std::string text) {
  for (char& c : text) c = c >= ' ' && c <= '~' ? c : c == '\0' || c == '\n' ? ' ' : '?';
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::string command_of(std::uint32_t pid) {
  char words[512];
  const long n =
      base::sys::read_small_file(fmt::format("/proc/{}/cmdline", pid).c_str(), words, sizeof words);
  return n <= 0 ? "" : printed(std::string(words, static_cast<std::size_t>(n)));
}

std::string without_folder(const std::string& command) {
  const std::size_t end = std::min(command.find(' '), command.size());
  const std::size_t slash = command.rfind('/', end);
  return slash == std::string::npos ? command : command.substr(slash + 1);
}

void add_wrapped(std::vector<std::string>& lines, std::string text, std::size_t columns) {
  for (const char* indent = ""; !text.empty(); indent = "  ") {
    const std::size_t room = std::max<std::size_t>(columns, 12) - std::string_view(indent).size();
    std::size_t end = text.size();
    if (end > room) {
      end = text.rfind(' ', room);
      if (end == std::string::npos || end == 0) end = room;
    }
    lines.push_back(indent + text.substr(0, end));
    text.erase(0, std::min(text.size(), text.find_first_not_of(' ', end)));
  }
}

}  // namespace cube::cli
