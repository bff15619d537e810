#include "cache/region/noted_path.h"

#include <fmt/core.h>

namespace cube::cache {

void write_noted_path(std::span<char> text, std::string_view path) {
  constexpr std::string_view k_left_out = "...";
  const std::size_t room = text.size() - 1;
  const bool fits = path.size() <= room;
  if (!fits) path.remove_prefix(path.size() - (room - k_left_out.size()));
  *fmt::format_to_n(text.data(), room, "{}{}", fits ? "" : k_left_out, path).out = '\0';
}

}  // namespace cube::cache
