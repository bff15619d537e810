#include "prefetch/packed_span.h"

namespace cube::prefetch {

bool PackedSpan::begin(const cache::PackMounts& packs, std::string_view path, std::uint64_t max_file) {
  files_ = 0;
  pack_ = packs.of(path);
  if (pack_ == nullptr) return false;
  const auto slot = pack_->locate(path);
  if (!slot || slot->bytes > std::min(max_file, k_most_bytes)) return false;
  slots_[files_++] = *slot;
  return true;
}

PackedSpan::Add PackedSpan::add(std::string_view path) {
  if (!pack_->covers(path)) return Add::elsewhere;
  const auto slot = pack_->locate(path);
  if (!slot || slot->offset < end() || slot->offset - end() > k_most_gap) return Add::elsewhere;
  if (files_ == k_most_files || slot->offset + slot->bytes - slots_[0].offset > k_most_bytes) return Add::no_room;
  slots_[files_++] = *slot;
  return Add::added;
}

const std::byte* PackedSpan::read(cache::PackScratch& scratch) const {
  const std::uint64_t begin = slots_[0].offset, bytes = end() - begin;
  // All there may be of a span, so that its pages are there for the next one, too.
  std::byte* const room = scratch.reserve(k_most_bytes);
  if (room == nullptr) return nullptr;
  const auto got = pack_->reader().read_span(begin, bytes, room);
  return got && *got == bytes ? room : nullptr;
}

base::Result<void> PackedSpan::take(unsigned n, std::string_view path, const std::byte* bytes,
                                    cache::PackMount::Content& content) const {
  const cache::PackSlot& slot = slots_[n];
  return pack_->take(slot, path, bytes + (slot.offset - slots_[0].offset), slot.bytes, content);
}

}  // namespace cube::prefetch
