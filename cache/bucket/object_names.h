// The data of a record that lists a directory of a bucket: the names in byte order, each with its
// size, its time and a hash of its ETag. The record's kind is `directory`, but its data has another
// format than DirectoryData. Thread safety: immutable after write(). Async-signal-safe; allocates
// nothing. No function reads outside the data, even if the data is damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "cache/bucket/bucket_mount.h"
#include "cache/record/record.h"

namespace cube::cache {

class ObjectNames {
 public:
  struct Entry {
    std::string_view name;
    bool is_directory = false;
    ObjectInfo object;  // unused for a directory

    friend bool operator==(const Entry&, const Entry&) = default;
  };

  static std::uint64_t bytes_for(std::uint64_t count, std::uint64_t name_bytes) {
    return sizeof(Head) + count * sizeof(Row) + name_bytes;
  }
  // `entries` must be sorted by name. `to` must be aligned to 8 bytes, and have room for
  // bytes_for().
  static void write(std::byte* to, std::span<const Entry> entries, std::uint64_t name_bytes);

  // Empty: the record is not such a listing, or is damaged.
  static std::optional<ObjectNames> of(const Record& record);

  std::uint64_t count() const { return count_; }
  // `place` must be less than count(). The name is empty if the row is damaged.
  Entry at(std::uint64_t place) const;
  std::optional<Entry> find(std::string_view name) const;

 private:
  struct Head {
    std::uint64_t form, count, name_bytes;
  };
  struct Row {
    std::uint64_t size;
    std::int64_t modified;
    std::uint64_t name_at;
    std::uint32_t etag_mark;
    std::uint16_t name_length, is_directory;
  };

  const Row* rows_ = nullptr;
  const char* names_ = nullptr;
  std::uint64_t count_ = 0, name_bytes_ = 0;
};

}  // namespace cube::cache
