// Recognizes the formats of a model's weights: safetensors, GGUF and torch's archives. A program
// that maps a file of such a format reads it from end to end. Thread safety: a pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cube::cache {

// `head`: the first bytes of a file of `size` bytes, nine or more.
bool is_weights_format(std::span<const std::byte> head, std::uint64_t size);

}  // namespace cube::cache
