// A part of a file, as an entry of a list or an announcement names it: "path@offset+length". Offset
// and length are decimal, in bytes or with a unit as in the settings (K, M, G). A file whose own
// name has this form takes precedence: callers ask the origin for the whole name first. Thread
// safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cube::prefetch {

struct ByteRange {
  std::uint64_t begin = 0, end = UINT64_MAX;
  bool is_all() const { return begin == 0 && end == UINT64_MAX; }
};

struct NamedRange {
  // wrong: the text has the form of a range, but the range is invalid
  enum class Kind : std::uint8_t { none, good, wrong } kind = Kind::none;
  std::string_view path;  // the text before the range; empty if there is none
  ByteRange range;
};

NamedRange named_range(std::string_view text);
// The inverse of named_range().
std::string text_of_range(std::string_view path, const ByteRange& range);

}  // namespace cube::prefetch
