#include "cache/pack/pack_format.h"

#include <cstring>

namespace cube::cache {

PackListingReader::PackListingReader(std::string_view data) : rest_(data) {
  if (rest_.size() < sizeof head_) return;
  std::memcpy(&head_, rest_.data(), sizeof head_);
  rest_.remove_prefix(sizeof head_);
  left_ = head_.count;
  is_sound_ = left_ != 0 || rest_.empty();
}

bool PackListingReader::next(std::string_view& name, PackName& entry) {
  if (!is_sound_ || left_ == 0) return false;
  is_sound_ = false;
  if (rest_.size() < sizeof entry) return false;
  std::memcpy(&entry, rest_.data(), sizeof entry);
  rest_.remove_prefix(sizeof entry);
  if (rest_.size() <= entry.length || rest_[entry.length] != '\0') return false;
  name = rest_.substr(0, entry.length);
  rest_.remove_prefix(std::size_t{entry.length} + 1);
  --left_;
  is_sound_ = is_pack_name(name) && (left_ != 0 || rest_.empty());
  return is_sound_;
}

bool is_pack_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.size() <= NAME_MAX &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

bool is_pack_path(std::string_view path) {
  if (path.size() >= PATH_MAX) return false;
  if (path.empty()) return true;
  for (;;) {
    const std::size_t end = path.find('/');
    if (!is_pack_name(path.substr(0, end))) return false;
    if (end == std::string_view::npos) return true;
    path.remove_prefix(end + 1);
  }
}

FileStat packed_stat(FileStat stat, std::uint32_t device) {
  stat.device_major = 0;
  stat.device_minor = device;
  stat.mount_id = 0;
  stat.mask &= ~static_cast<std::uint32_t>(STATX_MNT_ID);
  stat.attributes &= ~static_cast<std::uint64_t>(STATX_ATTR_MOUNT_ROOT);
  stat.accessed = stat.modified;
  return stat;
}

RecordPlan place_record_in_pack(std::uint64_t fill, std::uint64_t path_length,
                                std::uint64_t data_size) {
  const RecordPlan plan = plan_record(fill, path_length, data_size);
  const std::uint64_t segment = plan.start / k_pack_segment;
  if ((plan.end - 1) / k_pack_segment == segment) return plan;
  // A record that would cross the end of a segment moves to the start of the next segment. A record
  // larger than a segment stays if it already begins at the start of a segment.
  const RecordPlan next = plan_record((segment + 1) * k_pack_segment, path_length, data_size);
  return fill % k_pack_segment == 0 ? plan : next;
}

PackFooter footer_of(const PackHeader& header) {
  PackFooter footer{};
  footer.magic = PackFooter::k_magic;
  footer.entries = header.entries;
  footer.file_bytes = header.file_bytes;
  const std::uint64_t words[2] = {header.header_hash, header.index_hash};
  footer.content_hash = base::hash_bytes(words, sizeof words);
  footer.footer_hash = hash_of(footer);
  return footer;
}

}  // namespace cube::cache
