#include "cache/origin/origins.h"

#include <fmt/core.h>

#include <algorithm>

#include <utility>

namespace cube::cache {

Origins::Origins(std::unique_ptr<PackMounts> packs) : packs_(std::move(packs)) {
  for (const auto& mount : packs_->all())
    places_.push_back({mount.get(), std::make_unique<const PackOrigin>(*mount)});
}

std::string Origins::make_absolute(std::vector<base::OriginSetting>& settings,
                                   std::string_view directory) {
  std::string text;
  for (auto& setting : settings) {
    if (setting.file.front() != '/') setting.file = fmt::format("{}/{}", directory, setting.file);
    text += fmt::format("{}{}={}", text.empty() ? "" : ":", setting.prefix, setting.file);
  }
  const auto colons = static_cast<std::size_t>(std::count(text.begin(), text.end(), ':'));
  return colons + 1 == settings.size() ? text : std::string();
}

std::unique_ptr<Origins> Origins::open(const std::vector<base::OriginSetting>& settings,
                                       std::vector<std::string>& errors) {
  return std::unique_ptr<Origins>(new Origins(PackMounts::open(settings, errors)));
}

std::unique_ptr<Origins> Origins::reopened() const {
  return std::unique_ptr<Origins>(new Origins(packs_->opened_anew()));
}

}  // namespace cube::cache
