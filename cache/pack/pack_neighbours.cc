#include "cache/pack/pack_neighbours.h"

#include <cstring>
#include <utility>

#include "cache/record/record_hash.h"

namespace cube::cache {

PackNeighbours::PackNeighbours(const PackMount& mount, const PackMount::Content& content)
    : mount_(mount), content_(content), at_(content.span.begin) {
  if (!path_) return;
  std::memcpy(path_.data(), mount.prefix().data(), mount.prefix().size());
  path_.data()[mount.prefix().size()] = '/';
}

// The bytes of a file may look like a record, because a pack may contain a pack. So this checks
// that the index has the record.
bool PackNeighbours::is_record(std::uint64_t offset, std::string_view& path,
                               PackEntry& entry) const {
  const std::byte* const bytes = content_.window + (offset - content_.span.begin);
  const std::uint64_t left = content_.span.end() - offset;
  if (!read_pack_head(bytes, left, offset, content_.span.end(), entry, path)) return false;
  const std::uint64_t hash = base::hash_path(path);
  for (std::uint64_t n = 0;; ++n) {
    const auto slot = mount_.reader().locate(hash, n);
    if (!slot) return false;
    if (slot->offset == offset) return slot->bytes == entry.bytes;
  }
}

bool PackNeighbours::next(std::string_view& path, PackMount::Content& found) {
  if (content_.window == nullptr || !path_) return false;
  while (at_ + sizeof(Record) <= content_.span.end()) {
    const std::uint64_t at = std::exchange(at_, at_ + k_record_alignment);
    const PackEntry& entry = found.entry;
    std::string_view name;
    if (!is_record(at, name, found.entry)) continue;
    at_ = (entry.end() + k_record_alignment - 1) / k_record_alignment * k_record_alignment;
    const std::size_t prefix = mount_.prefix().size() + 1;
    const std::byte* const record = content_.window + (at - content_.span.begin);
    if (entry.kind != RecordKind::file || at == content_.entry.offset ||
        prefix + name.size() >= PATH_MAX)
      continue;
    if (!data_is_sound(*reinterpret_cast<const Record*>(record))) continue;
    std::memcpy(path_.data() + prefix, name.data(), name.size());
    path = {path_.data(), prefix + name.size()};
    found.stat = mount_.as_seen(entry.stat);
    found.physical = true;
    found.data = record + (entry.data_offset - entry.offset);
    return true;
  }
  return false;
}

}  // namespace cube::cache
