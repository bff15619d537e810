// Formats of files that a program which maps them reads from end to end: the weights of a model.
// Thread safety: a pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cube::cache {

// `head`: the first bytes of a file of `size` bytes, nine or more.
bool is_read_whole(std::span<const std::byte> head, std::uint64_t size);

}  // namespace cube::cache
