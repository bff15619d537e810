// The addresses at which this library is loaded. Thread safety: constants.
#pragma once

#include <cstddef>

extern "C" {
[[gnu::visibility("hidden")]] extern const std::byte __ehdr_start[];
[[gnu::visibility("hidden")]] extern const std::byte _end[];
}

namespace cube::shim {

inline bool is_in_library(const void* address) { return address >= __ehdr_start && address < _end; }

}  // namespace cube::shim
