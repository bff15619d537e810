// The formats of a model's weights, which a program that maps such a file reads from end to end:
// safetensors, GGUF and torch's archives. Thread safety: a pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cube::cache {

// `head`: the first bytes of a file of `size` bytes, nine or more.
bool is_weights_format(std::span<const std::byte> head, std::uint64_t size);

}  // namespace cube::cache
