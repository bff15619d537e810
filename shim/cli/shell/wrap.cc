#include "shim/cli/shell/wrap.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace cube::cli {
namespace {

// A place where a line can be broken.
struct Break {
  std::size_t at = 0;  // the position of a space; 0: there is no such place
  std::size_t indent = 0;
  bool is_needed = false;  // the line is too wide
};

Break break_of(std::string_view line, std::size_t width) {
  Break found;
  std::size_t column = 0, first = std::string_view::npos;
  bool in_escape = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b') in_escape = true;
    if (in_escape) {
      in_escape = line[i] != 'm';
      continue;
    }
    if ((static_cast<unsigned char>(line[i]) & 0xc0) == 0x80) continue;  // inside a character
    if (column == width && line[i] != '\n') {
      found.is_needed = true;
      if (line[i] == ' ') found.at = i;
      break;
    }
    if (line[i] == ' ' && first != std::string_view::npos) found.at = i;
    if (line[i] != ' ') {
      if (first == std::string_view::npos) first = column;
      // The last column of a table begins after at least two spaces.
      if (i >= 2 && line[i - 1] == ' ' && line[i - 2] == ' ' && 3 * column < 2 * width)
        found.indent = column;
    }
    ++column;
  }
  if (found.indent == 0) found.indent = (first == std::string_view::npos ? 0 : first) + 2;
  return found;
}

}  // namespace

std::string fitted(std::string_view text, std::size_t width) {
  std::string result;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    std::string line(text.substr(0, end));
    text.remove_prefix(end);
    for (Break next = break_of(line, width); next.is_needed && next.at > next.indent;
         next = break_of(line, width)) {
      result += line.substr(0, next.at) + '\n';
      line = std::string(next.indent, ' ') + line.substr(next.at + 1);
    }
    result += line;
  }
  return result;
}

std::size_t columns_of(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

void print_fitted(std::string_view text) {
  const std::size_t columns = columns_of(STDOUT_FILENO);
  fmt::print("{}", columns != 0 ? fitted(text, columns) : std::string(text));
}

std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines(1);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    at = end + 1;
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width)
      lines.emplace_back();
    if (!lines.back().empty()) lines.back() += ' ';
    lines.back() += word;
  }
  return lines;
}

}  // namespace cube::cli
