#include "shim/cli/shell/markdown.h"

#include <fmt/core.h>

#include <algorithm>

#include "shim/cli/shell/wrap.h"

namespace cube::cli {
namespace {

// Returns the width of a list item's marker ("- text", "12. text"), or 0 if the line is not a list
// item.
std::size_t marker_of(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (text.starts_with("- ") || text.starts_with("* ")) return 2;
  return digits != 0 && text.substr(digits).starts_with(". ") ? digits + 2 : 0;
}

// A paragraph or a list item, collected line by line.
struct Paragraph {
  std::string text;
  std::size_t indent = 0, marker = 0;

  std::string take(std::size_t width) {
    std::string lines;
    const std::size_t hang = indent + marker;
    if (!text.empty()) {
      std::string head(indent, ' ');
      head += text.substr(0, marker);
      for (const auto& line : wrapped(text.substr(marker), width - std::min(width, hang))) {
        lines += head + line + '\n';
        head.assign(hang, ' ');
      }
    }
    *this = {};
    return lines;
  }
};

}  // namespace

std::string filled(std::string_view markdown, std::size_t width) {
  std::string result;
  Paragraph paragraph;
  bool is_code = false;
  while (!markdown.empty()) {
    const std::size_t end = std::min(markdown.find('\n'), markdown.size());
    const std::string_view line = markdown.substr(0, end);
    markdown.remove_prefix(std::min(end + 1, markdown.size()));
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
    const std::string_view text = line.substr(indent);
    const bool is_fence = text.starts_with("```");
    if (is_code || is_fence || text.empty() || text.front() == '#' || text.front() == '|') {
      result += paragraph.take(width);
      const std::string whole = std::string(line) + '\n';
      result += !is_code && text.starts_with('|') ? fitted(whole, width) : whole;
      is_code ^= is_fence;
      continue;
    }
    const std::size_t marker = marker_of(text);
    if (marker != 0) result += paragraph.take(width);
    if (paragraph.text.empty()) {
      paragraph = {std::string(text), indent, marker};
    } else {
      paragraph.text += ' ';
      paragraph.text += text;
    }
  }
  return result + paragraph.take(width);
}

}  // namespace cube::cli
