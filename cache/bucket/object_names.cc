#include "cache/bucket/object_names.h"

#include <cstring>

namespace cube::cache {
namespace {

// Distinguishes this format from DirectoryData, which begins with a count that is never this large.
constexpr std::uint64_t k_form = 0x3173656d616e334fULL;  // "O3names1"

}  // namespace

void ObjectNames::write(std::byte* to, std::span<const Entry> entries, std::uint64_t name_bytes) {
  const Head head{k_form, entries.size(), name_bytes};
  std::memcpy(to, &head, sizeof head);
  std::byte* row_at = to + sizeof head;
  char* const names = reinterpret_cast<char*>(row_at + entries.size() * sizeof(Row));
  std::uint64_t name_at = 0;
  for (const Entry& entry : entries) {
    const Row row{entry.object.size,
                  entry.object.modified,
                  name_at,
                  entry.object.etag_mark,
                  static_cast<std::uint16_t>(entry.name.size()),
                  static_cast<std::uint16_t>(entry.is_directory ? 1 : 0)};
    std::memcpy(row_at, &row, sizeof row);
    row_at += sizeof row;
    std::memcpy(names + name_at, entry.name.data(), entry.name.size());
    name_at += entry.name.size();
  }
}

std::optional<ObjectNames> ObjectNames::of(const Record& record) {
  if (record.kind != RecordKind::directory || record.data_size < sizeof(Head)) return std::nullopt;
  Head head;
  std::memcpy(&head, record.data(), sizeof head);
  const bool is_sound = head.form == k_form && head.count <= record.data_size / sizeof(Row) &&
                        head.name_bytes <= record.data_size &&
                        bytes_for(head.count, head.name_bytes) == record.data_size;
  if (!is_sound) return std::nullopt;
  ObjectNames names;
  names.rows_ = reinterpret_cast<const Row*>(record.data() + sizeof head);
  names.names_ = reinterpret_cast<const char*>(names.rows_ + head.count);
  names.count_ = head.count;
  names.name_bytes_ = head.name_bytes;
  return names;
}

ObjectNames::Entry ObjectNames::at(std::uint64_t place) const {
  const Row& row = rows_[place];
  if (row.name_at > name_bytes_ || row.name_length > name_bytes_ - row.name_at) return {};
  return {.name = {names_ + row.name_at, row.name_length},
          .is_directory = row.is_directory != 0,
          .object = {row.size, row.modified, row.etag_mark}};
}

std::optional<ObjectNames::Entry> ObjectNames::find(std::string_view name) const {
  std::uint64_t low = 0, high = count_;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    const Entry entry = at(middle);
    const int order = entry.name.compare(name);
    if (order == 0) return entry;
    if (order < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return std::nullopt;
}

}  // namespace cube::cache
