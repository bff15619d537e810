#include "cache/metadata/all_metadata.h"

#include "cache/metadata/pack_metadata.h"

namespace cube::cache {

std::unique_ptr<AllMetadata> AllMetadata::make(const Origins& origins) {
  if (origins.packs().is_empty()) return nullptr;
  auto made = std::make_unique<AllMetadata>();
  for (const auto& pack : origins.packs().all())
    made->all_.push_back(std::make_unique<const PackMetadata>(*pack));
  return made;
}

}  // namespace cube::cache
