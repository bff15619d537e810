#include "cache/tier/cluster/cluster_key.h"

#include <algorithm>
#include <cstring>

#include "cache/base/hash.h"

namespace cube::cache {

ClusterKey::ClusterKey(std::string_view space, std::uint64_t origin, std::string_view path, Of of) {
  constexpr std::uint64_t k_of_listing = 0x676e697473696c;  // "listing"
  if (of == Of::listing) origin ^= k_of_listing;
  constexpr std::string_view k_format = "cs2:";
  std::memcpy(text_, k_format.data(), k_format.size());
  space = space.substr(0, k_longest_space);
  char* to = std::ranges::copy(space, text_ + k_format.size()).out;
  const XXH128_hash_t hash = XXH3_128bits_withSeed(path.data(), path.size(), origin);
  for (const std::uint64_t half : {hash.high64, hash.low64}) {
    for (int shift = 60; shift >= 0; shift -= 4) *to++ = "0123456789abcdef"[(half >> shift) & 15];
  }
  size_ = static_cast<std::uint8_t>(to - text_);
}

std::uint64_t ClusterKey::hash_of_origin(std::string_view id) { return base::hash_path(id); }

std::uint64_t ClusterKey::hash() const { return base::hash_path(text()); }

}  // namespace cube::cache
