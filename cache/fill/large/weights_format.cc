#include "cache/fill/large/weights_format.h"

#include <string_view>

namespace cube::cache {

bool is_weights_format(std::span<const std::byte> head, std::uint64_t size) {
  constexpr std::size_t k_length_bytes = sizeof(std::uint64_t);
  if (head.size() <= k_length_bytes) return false;
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  // GGUF (llama.cpp) and torch archives (zip) begin with these bytes.
  if (text.starts_with("GGUF") || text.starts_with("PK\3\4")) return true;
  // safetensors: the little-endian length of a JSON object, followed by the object. The format's
  // own library refuses an object longer than k_longest.
  constexpr std::uint64_t k_longest = 100'000'000;
  std::uint64_t length = 0;
  for (std::size_t i = k_length_bytes; i-- > 0;)
    length = length << 8 | std::to_integer<std::uint64_t>(head[i]);
  return text[k_length_bytes] == '{' && length >= 2 && length <= k_longest &&
         length < size - k_length_bytes;
}

}  // namespace cube::cache
