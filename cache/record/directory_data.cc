#include "cache/record/directory_data.h"

#include <dirent.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <cstring>

#include "cache/base/hash.h"

namespace cube::cache {
namespace {

constexpr std::size_t k_name_at = offsetof(struct ::dirent, d_name);
static_assert(k_name_at == 19);
// With this limit, a place fits into 31 bits, and a value of begins_ into 32 bits.
constexpr std::uint32_t k_most = 1U << 26;

// Parses the entry at the start of these bytes and sets `length` to its length. Empty: there is no
// whole entry.
std::optional<DirectoryData::Entry> entry_in(std::span<const std::byte> bytes,
                                             std::size_t& length) {
  if (bytes.size() <= k_name_at) return std::nullopt;
  DirectoryData::Entry entry;
  std::uint16_t own = 0;
  std::memcpy(&own, bytes.data() + offsetof(struct ::dirent, d_reclen), sizeof own);
  if (own <= k_name_at || own % 8 != 0 || own > bytes.size()) return std::nullopt;
  // Refuses names that are longer than NAME_MAX, because the structure that a program passes to
  // readdir_r has no room for them. Some file systems have such names (FUSE: up to 1,024 bytes).
  if (own > sizeof(struct ::dirent)) return std::nullopt;
  std::memcpy(&entry.inode, bytes.data() + offsetof(struct ::dirent, d_ino), sizeof entry.inode);
  std::memcpy(&entry.type, bytes.data() + offsetof(struct ::dirent, d_type), sizeof entry.type);
  const auto* const name = reinterpret_cast<const char*>(bytes.data()) + k_name_at;
  const std::size_t name_length = strnlen(name, own - k_name_at);
  if (name_length == own - k_name_at || name_length == 0) return std::nullopt;
  entry.name = {name, name_length};
  length = own;
  return entry;
}

char small(char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c); }

bool is_same_in_small_letters(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, small, small);
}

// The hash is the same for names that differ only in case.
std::uint32_t hash_of_name(std::string_view name) {
  char text[NAME_MAX];
  const std::size_t n = std::min(name.size(), sizeof text);
  std::transform(name.begin(), name.begin() + static_cast<std::ptrdiff_t>(n), text, small);
  return static_cast<std::uint32_t>(base::hash_bytes(text, n));
}

std::uint32_t slots_for(std::uint32_t count) { return std::bit_ceil(count + count / 2 + 1); }

}  // namespace

struct DirectoryData::Head {
  std::uint32_t count, slot_count;
  std::uint64_t entries_bytes;
  std::uint32_t proves_negative_entries, has_true_times;
  std::uint64_t form;  // k_form; another value may come from another version of this library
};
constexpr std::uint64_t k_form = 2;

bool DirectoryData::Reader::next(Entry& entry) {
  std::size_t length = 0;
  const auto found = entry_in(rest_, length);
  if (!found) return false;
  entry = *found;
  rest_ = rest_.subspan(length);
  return true;
}

std::optional<std::uint32_t> DirectoryData::count_of(std::span<const std::byte> entries) {
  if (entries.size() > UINT32_MAX) return std::nullopt;
  std::uint32_t count = 0;
  for (std::size_t at = 0, length = 0; at < entries.size(); at += length) {
    if (!entry_in(entries.subspan(at), length) || ++count > k_most) return std::nullopt;
  }
  return count;
}

std::uint64_t DirectoryData::bytes_for(std::uint32_t count, std::uint64_t entries_bytes) {
  return sizeof(Head) +
         (sizeof(std::uint32_t) * (std::uint64_t{slots_for(count)} + count) + 7) / 8 * 8 +
         entries_bytes;
}

void DirectoryData::write(std::byte* to, std::span<const std::byte> entries, std::uint32_t count,
                          const Proves& proves) {
  const Head head{count,
                  slots_for(count),
                  entries.size(),
                  proves.proves_negative_entries ? 1U : 0U,
                  proves.has_true_times ? 1U : 0U,
                  k_form};
  std::memcpy(to, &head, sizeof head);
  auto* const slots = reinterpret_cast<std::uint32_t*>(to + sizeof head);
  auto* const begins = slots + head.slot_count;
  std::memset(slots, 0, sizeof(std::uint32_t) * head.slot_count);
  std::uint32_t place = 0;
  for (std::size_t at = 0, length = 0; place < count; at += length, ++place) {
    const auto entry = entry_in(entries.subspan(at), length);
    if (!entry) break;
    begins[place] = static_cast<std::uint32_t>(at);
    auto slot = hash_of_name(entry->name) & (head.slot_count - 1);
    while (slots[slot] != 0) slot = (slot + 1) & (head.slot_count - 1);
    slots[slot] = place + 1;
  }
  std::memcpy(to + (bytes_for(count, 0)), entries.data(), entries.size());
}

std::optional<DirectoryData> DirectoryData::of(const Record& record) {
  if (record.kind != RecordKind::directory || record.data_size < sizeof(Head)) return std::nullopt;
  Head head;
  std::memcpy(&head, record.data(), sizeof head);
  const bool is_sound = head.form == k_form && head.count <= k_most &&
                        head.slot_count == slots_for(head.count) &&
                        head.entries_bytes <= record.data_size &&
                        bytes_for(head.count, head.entries_bytes) == record.data_size;
  if (!is_sound) return std::nullopt;
  DirectoryData data;
  data.count_ = head.count;
  data.slot_count_ = head.slot_count;
  data.entries_bytes_ = head.entries_bytes;
  data.proves_ = {.proves_negative_entries = head.proves_negative_entries != 0,
                  .has_true_times = head.has_true_times != 0};
  data.slots_ = reinterpret_cast<const std::uint32_t*>(record.data() + sizeof head);
  data.begins_ = data.slots_ + head.slot_count;
  data.entries_ = record.data() + bytes_for(head.count, 0);
  return data;
}

std::optional<DirectoryData::Entry> DirectoryData::at(std::uint32_t place) const {
  if (place >= count_ || begins_[place] >= entries_bytes_) return std::nullopt;
  std::size_t length = 0;
  auto entry = entry_in(entries().subspan(begins_[place]), length);
  if (entry) entry->place = place;
  return entry;
}

template <typename Wanted>
std::optional<DirectoryData::Entry> DirectoryData::find_if(std::string_view name,
                                                           Wanted&& wanted) const {
  auto slot = hash_of_name(name) & (slot_count_ - 1);
  for (std::uint32_t step = 0; step < slot_count_ && slots_[slot] != 0;
       ++step, slot = (slot + 1) & (slot_count_ - 1)) {
    const auto entry = at(slots_[slot] - 1);
    if (entry && wanted(entry->name)) return entry;
  }
  return std::nullopt;
}

std::optional<DirectoryData::Entry> DirectoryData::find(std::string_view name) const {
  return find_if(name, [&](std::string_view other) { return other == name; });
}

bool DirectoryData::has_in_any_case(std::string_view name) const {
  return find_if(name,
                 [&](std::string_view other) { return is_same_in_small_letters(other, name); })
      .has_value();
}

std::uint64_t StatTable::hash_of_listing(const Record& listing) {
  const FileTime &changed = listing.stat.changed, &modified = listing.stat.modified;
  const std::uint64_t parts[] = {listing.data_hash, static_cast<std::uint64_t>(changed.seconds),
                                 changed.nanoseconds, static_cast<std::uint64_t>(modified.seconds),
                                 modified.nanoseconds};
  return base::hash_bytes(parts, sizeof parts);
}

void StatTable::write(std::byte* to, std::uint64_t listing_hash, std::span<const Entry> entries,
                      std::string_view targets) {
  const Head head{listing_hash, static_cast<std::uint32_t>(entries.size()),
                  static_cast<std::uint32_t>(targets.size())};
  std::memcpy(to, &head, sizeof head);
  std::memcpy(to + sizeof head, entries.data(), entries.size_bytes());
  std::byte* const behind = to + sizeof head + entries.size_bytes();
  std::memset(behind, 0, (targets.size() + 7) / 8 * 8);
  std::memcpy(behind, targets.data(), targets.size());
}

const StatTable::Entry* StatTable::find(const Record& record, std::uint64_t listing_hash,
                                        std::uint32_t place) {
  if (record.kind != RecordKind::stat || record.data_size < sizeof(Head)) return nullptr;
  Head head;
  std::memcpy(&head, record.data(), sizeof head);
  if (head.listing_hash != listing_hash || place >= head.count ||
      bytes_for(head.count, head.target_bytes) != record.data_size)
    return nullptr;
  const auto* const entry = reinterpret_cast<const Entry*>(record.data() + sizeof head) + place;
  return entry->looked_ns != 0 ? entry : nullptr;
}

std::string_view StatTable::target_of(const Record& record, const Entry& entry) {
  Head head;
  std::memcpy(&head, record.data(), sizeof head);
  if (entry.target == 0 || entry.target > head.target_bytes) return {};
  const auto* const targets = reinterpret_cast<const char*>(record.data()) + sizeof head +
                              std::uint64_t{head.count} * sizeof(Entry);
  const std::uint32_t begin = entry.target - 1;
  const std::size_t room = head.target_bytes - begin, length = strnlen(targets + begin, room);
  return length < room ? std::string_view(targets + begin, length) : std::string_view();
}

}  // namespace cube::cache
