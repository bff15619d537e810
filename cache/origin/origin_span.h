// A range of bytes in an origin that stores its files one after another. Thread safety: a plain
// value.
#pragma once

#include <cstdint>

#include "cache/record/record.h"

namespace cube::cache {

struct OriginSpan {
  OriginId origin = k_mounts;
  std::uint64_t begin = 0, bytes = 0;

  std::uint64_t end() const { return begin + bytes; }
  bool is_empty() const { return bytes == 0; }
};

}  // namespace cube::cache
