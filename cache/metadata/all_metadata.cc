#include "cache/metadata/all_metadata.h"

#include <algorithm>

#include "cache/metadata/object_metadata.h"
#include "cache/metadata/pack_metadata.h"

namespace cube::cache {

std::unique_ptr<AllMetadata> AllMetadata::make(const Origins& origins) {
  if (origins.has_only_mounts()) return nullptr;
  auto made = std::make_unique<AllMetadata>();
  for (const auto& pack : origins.packs().all())
    made->all_.push_back(std::make_unique<const PackMetadata>(*pack));
  for (const auto& bucket : origins.buckets())
    made->all_.push_back(std::make_unique<const ObjectMetadata>(*bucket));
  // The innermost prefix answers.
  std::ranges::stable_sort(made->all_, [](const auto& a, const auto& b) {
    return a->prefix().size() > b->prefix().size();
  });
  return made;
}

}  // namespace cube::cache
