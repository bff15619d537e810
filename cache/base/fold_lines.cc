#include "cache/base/fold_lines.h"

#include <cstring>

namespace cube::base {

std::size_t fold_lines(std::span<char> room, std::size_t size, std::size_t columns) {
  constexpr std::size_t k_indent = 10, k_narrow = 40;
  if (columns < k_narrow) return size;
  std::size_t column = 0, space = 0;  // the last place for a break; 0: none
  for (std::size_t i = 0; i < size; ++i) {
    if (room[i] == '\n' || room[i] == '\r') {
      column = space = 0;
      continue;
    }
    if ((static_cast<unsigned char>(room[i]) & 0xc0) == 0x80) continue;  // inside a UTF-8 character
    if (room[i] == ' ' && column > k_indent) space = i;
    if (++column <= columns || space == 0) continue;
    if (size + k_indent > room.size()) return size;
    std::memmove(&room[space] + 1 + k_indent, &room[space] + 1, size - space - 1);
    room[space] = '\n';
    std::memset(&room[space] + 1, ' ', k_indent);
    size += k_indent;
    i = space;
    column = space = 0;
  }
  return size;
}

}  // namespace cube::base
