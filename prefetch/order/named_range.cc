#include "prefetch/order/named_range.h"

#include <fmt/core.h>

#include "cache/base/settings/config.h"

namespace cube::prefetch {

NamedRange named_range(std::string_view text) {
  const std::size_t sign = text.rfind('@');
  if (sign == std::string_view::npos || sign == 0 || text[sign - 1] == '/') return {};
  const std::string_view tail = text.substr(sign + 1);
  const std::size_t plus = tail.find('+');
  // If a slash follows the '@', the '@' is part of a directory's name.
  if (plus == std::string_view::npos ||
      tail.find_first_not_of("0123456789+-.KMGTkmgtiB") != std::string_view::npos)
    return {};
  NamedRange named{.kind = NamedRange::Kind::wrong, .path = text.substr(0, sign), .range = {}};
  std::uint64_t offset = 0, length = 0, end = 0;
  if (!base::parse_bytes(tail.substr(0, plus), offset) ||
      !base::parse_bytes(tail.substr(plus + 1), length))
    return named;
  if (length == 0 || __builtin_add_overflow(offset, length, &end)) return named;
  named.kind = NamedRange::Kind::good;
  named.range = {offset, end};
  return named;
}

std::string text_of_range(std::string_view path, const ByteRange& range) {
  return range.is_all() ? std::string(path)
                        : fmt::format("{}@{}+{}", path, range.begin, range.end - range.begin);
}

}  // namespace cube::prefetch
