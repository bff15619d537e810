// PackMount: reads records, either alone or together with the window around them.
#include <cerrno>

#include "cache/base/clock.h"
#include "cache/base/hash.h"
#include "cache/pack/pack_mount.h"

namespace cube::cache {

// Returns the record at found.slot if content.window contains it.
base::Result<PackEntry> PackMount::find_in_window(const FoundName& found, Content& content) const {
  const PackSlot& slot = found.slot;
  const bool is_inside = content.window != nullptr && slot.offset >= content.span.begin &&
                         slot.offset - content.span.begin + slot.bytes <= content.span.bytes;
  if (!is_inside) return base::fail(EBADMSG);
  const std::byte* const record = content.window + (slot.offset - content.span.begin);
  auto entry = PackReader::check_record(slot, found.name(), record, slot.bytes);
  if (entry) content.data = record + (entry->data_offset - entry->offset);
  return entry;
}

void PackMount::read_window(const PackSlot& slot, base::Scratch& scratch, Content& content) const {
  content.window = nullptr;
  const PackSpan span = windows_->around(slot);
  if (span.bytes == slot.bytes) return;
  // Makes the kernel request all parts at the same time. Otherwise it would read one part after
  // another.
  if (reader_->keeps_pages()) reader_->will_need(span.begin, span.bytes);
  std::byte* const room = scratch.reserve(span.bytes);
  if (room == nullptr) return;
  const std::uint64_t began = base::monotonic_ns();
  const auto got = reader_->read_span(span.begin, span.bytes, room);
  if (!got || *got != span.bytes) return;
  windows_->note_time(slot, span, base::monotonic_ns() - began);
  content.window = room;
  content.span = span;
}

// Reads the record at found.slot. With Reach::window, also reads the window around it.
base::Result<PackEntry> PackMount::read_found(const FoundName& found, Reach reach,
                                              base::Scratch& scratch, Content& content) const {
  const bool may_reach = reach == Reach::window && windows_ != nullptr;
  // If the path led through a link, the window around the link's record may contain this record.
  auto entry = find_in_window(found, content);
  if (!entry && may_reach) {
    read_window(found.slot, scratch, content);
    entry = find_in_window(found, content);
  }
  if (entry) return entry;
  content.window = nullptr;
  std::byte* const room = scratch.reserve(found.slot.bytes);
  if (room == nullptr) return base::fail(ENOMEM);
  const std::uint64_t began = may_reach ? base::monotonic_ns() : 0;
  entry = reader_->read_record(found.slot, found.name(), room);
  if (!entry) return entry;
  if (may_reach)
    windows_->note_time(found.slot, {found.slot.offset, found.slot.bytes},
                        base::monotonic_ns() - began);
  content.data = room + (entry->data_offset - entry->offset);
  return entry;
}

base::Result<void> PackMount::read_any(const Wish& wish, base::Scratch& scratch, FoundName& found,
                                       Content& content) const {
  const auto result = as_seen(read_as_it_is(wish, scratch, found, content));
  if (!result && result.error().value == EIO) content.data = content.window = nullptr;
  return result;
}

base::Result<void> PackMount::read_as_it_is(const Wish& wish, base::Scratch& scratch,
                                            FoundName& found, Content& content) const {
  const std::uint64_t most_bytes = wish.most + k_most_pack_head + 2 * k_page;
  content.window = nullptr;
  for (bool has_followed = false;;) {
    auto result = look_up(found, false);
    // Two paths may have the same hash, so the path in the record is compared.
    base::Result<PackEntry> entry = base::fail(ENOENT);
    const bool fits = result && found.slot.bytes <= most_bytes;
    if (fits) entry = read_found(found, wish.reach, scratch, content);
    if (result && (!fits || (!entry && entry.error().value == ENOENT))) {
      result = look_up(found, true);
      if (result) entry = found.entry;
    } else if (result && entry) {
      entry->stat = as_seen(entry->stat);
    } else if (result) {
      result = base::fail(entry.error().value);
    }
    const bool is_link = result && entry->kind == RecordKind::link;
    const bool may_be_linked =
        (!result && result.error().value == ENOENT) || (is_link && wish.follows);
    if (may_be_linked && !has_followed && reader_->header().links != 0) {
      has_followed = true;
      const auto followed = follow_links(wish.follows, found);
      if (!followed) return followed;
      continue;
    }
    if (!result && result.error().value == ENOENT && !has_followed)
      result = base::fail(negative_entry_of(found.name()));
    if (!result) return result;
    content.entry = *entry;
    content.stat = entry->stat;
    content.physical = found.physical;
    const bool is_whole = fits && entry->offset == found.slot.offset;
    if (!is_whole) content.data = content.window = nullptr;
    return {};
  }
}

base::Result<void> PackMount::read(std::string_view path, std::uint64_t most,
                                   base::Scratch& scratch, Content& content, Reach reach) const {
  FoundName found;
  auto result = begin(path, found);
  if (result) result = read_any({.most = most, .reach = reach}, scratch, found, content);
  if (result && content.entry.kind != RecordKind::file) return base::fail(EISDIR);
  return result;
}

PackSpan PackMount::place_of(std::string_view path) const {
  constexpr std::uint64_t k_most_bytes = 512 << 10;
  if (!reader_->can_keep_index()) return {};
  reader_->will_need_index();
  const auto slot = reader_->locate(base::hash_path(below_prefix(path)));
  if (!slot || slot->bytes > k_most_bytes) return {};
  return {slot->offset, slot->bytes};
}

base::Result<void> PackMount::read_span(const PackSpan& span, base::Scratch& scratch,
                                        Content& content) const {
  content.data = content.window = nullptr;
  if (reader_->keeps_pages()) reader_->will_need(span.begin, span.bytes);
  std::byte* const room = scratch.reserve(span.bytes);
  if (room == nullptr) return base::fail(ENOMEM);
  const auto got = reader_->read_span(span.begin, span.bytes, room);
  auto result = got ? base::Result<void>() : base::fail(got.error().value);
  if (got && *got != span.bytes) result = base::fail(EBADMSG);
  result = as_seen(result);
  if (!result) return result;
  content.window = room;
  content.span = span;
  return {};
}

base::Result<void> PackMount::take(std::string_view path, const PackSpan& place,
                                   Content& content) const {
  content.data = nullptr;
  const std::uint64_t at = place.begin - content.span.begin;
  const bool is_inside = content.window != nullptr && place.begin >= content.span.begin &&
                         place.end() <= content.span.end();
  if (!is_inside) return base::fail(ENOENT);
  const PackSlot slot{.hash = 0, .offset = place.begin, .bytes = place.bytes};
  const auto entry =
      PackReader::check_record(slot, below_prefix(path), content.window + at, place.bytes);
  if (!entry) return base::fail(entry.error().value);
  if (entry->kind != RecordKind::file) return base::fail(EISDIR);
  content.entry = *entry;
  content.stat = as_seen(entry->stat);
  content.physical = true;
  content.data = content.window + at + (entry->data_offset - entry->offset);
  return {};
}

base::Result<void> PackMount::read_listing(std::string_view path, bool follows,
                                           base::Scratch& scratch, FoundName& found,
                                           Content& content) const {
  constexpr std::uint64_t k_no_bound = 1ULL << 40;
  auto result = begin(path, found);
  if (result) result = read_any({.follows = follows, .most = k_no_bound}, scratch, found, content);
  if (result && content.entry.kind != RecordKind::directory) return base::fail(ENOTDIR);
  if (!result || content.data != nullptr) return result;
  // Two paths have the same hash, and the record that was read first belongs to the other path.
  std::byte* const room = scratch.reserve(content.entry.data_size);
  if (room == nullptr) return base::fail(ENOMEM);
  result = as_seen(reader_->read(content.entry, room));
  if (!result) return result;
  content.data = room;
  return {};
}

}  // namespace cube::cache
