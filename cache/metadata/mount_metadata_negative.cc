// MountMetadata: negative entries. Determines from listings in memory that a path does not exist.
// mount_metadata_freshness.cc decides how long a listing is valid.
#include "cache/base/hash.h"
#include "cache/base/path.h"
#include "cache/metadata/mount_metadata.h"

namespace cube::cache {

bool MountMetadata::asks_again(std::string_view key, std::uint64_t kind) {
  const std::uint64_t hash = base::hash_path(key) * 4 + kind;
  return asked_[(hash >> 8) % k_asked].exchange(hash, std::memory_order_relaxed) == hash;
}

MountMetadata::Says MountMetadata::negative_unless_changed(std::string_view key, Pin&& directory,
                                                           const DirectoryData& data) {
  const std::string_view name = base::split_path(key).name;
  if (!data.proves_negative_entries() || !may_be_negative(name) || data.has_in_any_case(name))
    return Says::unknown;
  if (!holds(*directory, asks_again(key, k_kind_absent))) return Says::unknown;
  region_->stats().count(base::Counter::metadata_negative);
  return Says::absent;
}

// Called if memory has no listing of the path. The listing of a directory further up may show that
// the path does not exist.
MountMetadata::Says MountMetadata::look_above(std::string_view path) {
  constexpr int k_most_levels = 8;
  for (int level = 0; level < k_most_levels && path.size() > 1; ++level) {
    const auto [above, name] = base::split_path(path);
    Pin found = directory(above);
    if (!found) {
      path = above;
      continue;
    }
    const auto data = DirectoryData::of(*found);
    if (!data || data->find(name)) return Says::unknown;
    return negative_unless_changed(path, std::move(found), *data);
  }
  return Says::unknown;
}

MountMetadata::Entry MountMetadata::entry_of(std::string_view key) {
  const auto [parent, name] = base::split_path(key);
  Entry entry;
  entry.directory = directory(parent);
  if (!entry.directory) {
    entry.says = look_above(parent);
    return entry;
  }
  const auto data = DirectoryData::of(*entry.directory);
  if (!data) return entry;
  const auto found = data->find(name);
  if (!found) {
    entry.says = negative_unless_changed(key, std::move(entry.directory), *data);
    return entry;
  }
  entry.says = Says::present;
  entry.entry = *found;
  return entry;
}

bool MountMetadata::has_listing_beside(std::string_view key) const {
  return static_cast<bool>(directory(base::split_path(key).directory));
}

bool MountMetadata::is_absent(std::string_view key) {
  return is_on_ && key.size() > 1 && entry_of(key).says == Says::absent;
}

}  // namespace cube::cache
