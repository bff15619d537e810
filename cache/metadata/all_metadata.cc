#include "cache/metadata/all_metadata.h"

#include <algorithm>

#include "cache/metadata/object_metadata.h"
#include "cache/metadata/pack_metadata.h"

namespace cube::cache {

std::unique_ptr<AllMetadata> AllMetadata::make(const Origins& origins) {
  if (origins.has_only_mounts()) return nullptr;
  auto made = std::make_unique<AllMetadata>();
  for (const auto& pack : origins.packs().all()) made->add(new PackMetadata(*pack));
  for (const auto& bucket : origins.buckets()) made->add(new ObjectMetadata(*bucket));
  return made;
}

void AllMetadata::add(const Metadata* metadata) {
  std::unique_ptr<const Metadata> own(metadata);
  const auto shorter = std::ranges::find_if(
      all_, [&](const auto& other) { return other->prefix().size() < own->prefix().size(); });
  all_.insert(shorter, std::move(own));
}

}  // namespace cube::cache
