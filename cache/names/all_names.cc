#include "cache/names/all_names.h"

#include "cache/names/pack_names.h"

namespace cube::cache {

std::unique_ptr<AllNames> AllNames::make(const Origins& origins) {
  if (origins.packs().is_empty()) return nullptr;
  auto made = std::make_unique<AllNames>();
  for (const auto& pack : origins.packs().all()) made->all_.push_back(std::make_unique<const PackNames>(*pack));
  return made;
}

}  // namespace cube::cache
