#include "cache/origin/origins.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "cache/base/path.h"

namespace cube::cache {

void Origins::add_place(std::string_view prefix, const Origin& origin) {
  const auto shorter = std::ranges::find_if(
      places_, [&](const auto& place) { return place.prefix.size() < prefix.size(); });
  places_.insert(shorter, {prefix, &origin});
}

void Origins::make_places() {
  for (const auto& mount : packs_->all())
    add_place(mount->prefix(), *pack_origins_.emplace_back(new PackOrigin(*mount)));
  for (const auto& bucket : buckets_)
    add_place(bucket->mount().prefix(), *object_origins_.emplace_back(new ObjectOrigin(*bucket)));
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

std::unique_ptr<Origins> Origins::open(const std::vector<base::OriginSetting>& packs,
                                       const std::vector<base::OriginSetting>& buckets,
                                       std::vector<std::string>& errors) {
  // Leaves out packs whose file lies below the prefix of a bucket. Such a file does not exist for
  // the kernel, which must open the packs.
  std::vector<base::OriginSetting> of_kernel;
  for (const auto& pack : packs) {
    const auto bucket = std::ranges::find_if(buckets, [&](const auto& setting) {
      return base::is_at_or_below(pack.file, setting.prefix);
    });
    if (bucket == buckets.end()) {
      of_kernel.push_back(pack);
      continue;
    }
    errors.push_back(
        fmt::format("CUBESHIM_PACKS: {} lies in a bucket, where no pack can be read: fetch it by "
                    "`cubeshim cat {}{} > FILE`, and name that file",
                    pack.file, bucket->file, pack.file.substr(bucket->prefix.size())));
  }
  auto origins = std::unique_ptr<Origins>(new Origins(PackMounts::open(of_kernel, errors)));
  for (const auto& setting : buckets) origins->add_bucket(setting.prefix, setting.file);
  origins->make_places();
  return origins;
}

std::unique_ptr<Origins> Origins::reopened() const {
  auto origins = std::unique_ptr<Origins>(new Origins(packs_->opened_anew()));
  for (const auto& bucket : buckets_)
    origins->add_bucket(bucket->mount().prefix(), bucket->mount().url());
  origins->make_places();
  return origins;
}

}  // namespace cube::cache
