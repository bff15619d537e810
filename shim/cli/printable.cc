#include "shim/cli/printable.h"

namespace cube::cli {

std::string printable(std::string_view name) {
  std::string text(name);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // C1 control characters in UTF-8. For example, 0x9b begins a control sequence.
    const bool is_second = i + 1 < text.size() && c == 0xc2 &&
                           (static_cast<unsigned char>(text[i + 1]) & 0xe0) == 0x80;
    if (is_second) text.replace(i, 2, "?");
    if (c < 0x20 || c == 0x7f) text[i] = '?';
  }
  return text;
}

}  // namespace cube::cli
