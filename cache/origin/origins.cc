#include "cache/origin/origins.h"

#include <utility>

namespace cube::cache {

Origins::Origins(std::unique_ptr<PackMounts> packs) : packs_(std::move(packs)) {
  for (const auto& mount : packs_->all()) places_.push_back({mount.get(), std::make_unique<const PackOrigin>(*mount)});
}

std::unique_ptr<Origins> Origins::open(const std::vector<base::PackSetting>& settings, std::vector<std::string>& errors) {
  return std::unique_ptr<Origins>(new Origins(PackMounts::open(settings, errors)));
}

std::unique_ptr<Origins> Origins::reopened() const { return std::unique_ptr<Origins>(new Origins(packs_->opened_anew())); }

}  // namespace cube::cache
