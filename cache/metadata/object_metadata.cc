#include "cache/metadata/object_metadata.h"

#include <cerrno>
#include <climits>
#include <cstring>

#include "cache/base/memory/off_stack.h"
#include "cache/bucket/bucket_listing.h"

namespace cube::cache {

base::Result<FileStat> ObjectMetadata::stat(std::string_view key, Follow /*follow*/) const {
  return bucket_->stat(key);
}

base::Result<std::size_t> ObjectMetadata::real_path(std::string_view key, char* below) const {
  const auto found = bucket_->stat(key);
  if (!found) return base::fail(found.error().value);
  const std::string_view path = bucket_->mount().below(key);
  std::memcpy(below, path.data(), path.size());
  return path.size();
}

base::Result<std::size_t> ObjectMetadata::resolve(std::string_view key, char* below) const {
  const std::size_t base_length = prefix().size();
  base::OffStack room;
  if (!room) return base::fail(ENOMEM);
  if (key.size() >= PATH_MAX) return base::fail(ENAMETOOLONG);
  // The path so far, with the prefix.
  char* const path = room.data();
  std::memcpy(path, prefix().data(), base_length);
  std::size_t length = base_length;
  std::string_view rest = bucket_->mount().below(key);
  while (!rest.empty()) {
    const std::string_view name = rest.substr(0, rest.find('/'));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    if (name.empty() || name == ".") continue;
    if (name != "..") {
      path[length++] = '/';
      std::memcpy(path + length, name.data(), name.size());
      length += name.size();
      continue;
    }
    if (length == base_length) return base::fail(ENOENT);
    const auto left = bucket_->stat({path, length});
    if (!left) return base::fail(left.error().value);
    if ((left->mode & S_IFMT) != S_IFDIR) return base::fail(ENOTDIR);
    length = std::string_view(path, length).rfind('/');
  }
  const std::string_view found = bucket_->mount().below({path, length});
  std::memcpy(below, found.data(), found.size());
  return found.size();
}

base::Result<std::size_t> ObjectMetadata::read_link(std::string_view key, char* /*target*/) const {
  const auto found = bucket_->stat(key);
  return base::fail(found ? EINVAL : found.error().value);
}

base::Result<Listing*> ObjectMetadata::list(std::string_view key, Follow /*follow*/,
                                            bool with_names) const {
  const auto found = bucket_->stat(key);
  if (!found) return base::fail(found.error().value);
  if ((found->mode & S_IFMT) != S_IFDIR) return base::fail(ENOTDIR);
  return list_bucket(*bucket_, key, with_names);
}

base::Result<base::UniqueFd> ObjectMetadata::open_copy(std::string_view key, int flags) const {
  const auto found = bucket_->stat(key);
  if (!found) return base::fail(found.error().value);
  if (!found->is_regular()) return base::fail(EISDIR);
  return bucket_->copy(key, *found, flags, /*is_prefetch=*/false);
}

// A store does not report its size.
Metadata::Volume ObjectMetadata::volume() const { return {}; }

}  // namespace cube::cache
