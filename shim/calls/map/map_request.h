// The arguments of an mmap() of a served file. Thread safety: plain data.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cube::shim::mappings {

struct MapRequest {
  void* at;
  std::size_t length;
  int protection, flags;
  std::int64_t offset;
};

}  // namespace cube::shim::mappings
