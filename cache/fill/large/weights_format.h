// Recognizes files that contain the weights of a model: safetensors, GGUF and torch archives. A
// program that maps such a file reads it from start to end. Thread safety: a pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cube::cache {

// `head`: at least the first nine bytes of the file. `size`: the size of the file.
bool is_weights_format(std::span<const std::byte> head, std::uint64_t size);

}  // namespace cube::cache
