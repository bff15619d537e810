#include "cache/region/noted_path.h"

#include <cstring>

namespace cube::cache {

void write_noted_path(std::span<char> text, std::string_view path) {
  constexpr std::string_view k_left_out = "...";
  const std::size_t room = text.size() - 1;
  const std::size_t head = path.size() <= room ? 0 : k_left_out.size();
  if (head != 0) path.remove_prefix(path.size() - (room - head));
  std::memcpy(text.data(), k_left_out.data(), head);
  std::memcpy(text.data() + head, path.data(), path.size());
  text[head + path.size()] = '\0';
}

}  // namespace cube::cache
