// Forges packs: after a change, recomputes the hashes of header and footer, but not the hashes of
// the data.
#pragma once

#include <cstring>
#include <string>

#include "cache/pack/pack_format.h"

namespace cube::tests {

inline void forge_frame(std::string& pack) {
  cache::PackHeader header{};
  std::memcpy(&header, pack.data(), sizeof header);
  header.header_hash = cache::hash_of(header);
  std::memcpy(pack.data(), &header, sizeof header);
  const cache::PackFooter footer = cache::footer_of(header);
  std::memcpy(pack.data() + pack.size() - sizeof footer, &footer, sizeof footer);
}

}  // namespace cube::tests
