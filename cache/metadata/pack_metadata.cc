#include "cache/metadata/pack_metadata.h"

#include <cerrno>
#include <climits>
#include <cstring>

#include "cache/pack/make/pack_copy.h"
#include "cache/pack/pack_listing.h"

namespace cube::cache {
namespace {

base::Result<std::size_t> copy_name(const PackMount::FoundName& found, char* below) {
  std::memcpy(below, found.path.data(), found.length);
  return std::size_t{found.length};
}

}  // namespace

base::Result<FileStat> PackMetadata::stat(std::string_view key, Follow follow) const {
  PackMount::FoundName found;
  const auto there = pack_->find(key, follow == Follow::last, found);
  if (!there) return base::fail(there.error().value);
  return found.entry.stat;
}

base::Result<std::size_t> PackMetadata::real_path(std::string_view key, char* below) const {
  PackMount::FoundName found;
  const auto there = pack_->find(key, /*follows=*/true, found);
  return there ? copy_name(found, below) : base::fail(there.error().value);
}

base::Result<std::size_t> PackMetadata::resolve(std::string_view key, char* below) const {
  PackMount::FoundName found;
  const auto there = pack_->resolve(key, found);
  return there ? copy_name(found, below) : base::fail(there.error().value);
}

base::Result<std::size_t> PackMetadata::read_link(std::string_view key, char* target) const {
  PackMount::FoundName found;
  const auto there = pack_->find(key, /*follows=*/false, found);
  if (!there) return base::fail(there.error().value);
  if (found.entry.kind != RecordKind::link) return base::fail(EINVAL);
  const std::size_t length = found.entry.data_size;
  if (length >= PATH_MAX ||
      !pack_->reader().read(found.entry, reinterpret_cast<std::byte*>(target)))
    return base::fail(EIO);
  return length;
}

base::Result<Listing*> PackMetadata::list(std::string_view key, Follow follow,
                                          bool with_names) const {
  return list_packed(*pack_, key, follow == Follow::last, with_names);
}

base::Result<base::UniqueFd> PackMetadata::open_copy(std::string_view key, int flags) const {
  return open_copy_of_packed(*pack_, key, flags);
}

Metadata::Volume PackMetadata::volume() const {
  const PackHeader& header = pack_->reader().header();
  return {.bytes = header.file_bytes, .files = header.entries};
}

}  // namespace cube::cache
