#include "cache/record/record_hash.h"

#include <climits>

#include "cache/base/hash.h"

namespace cube::cache {

std::uint64_t header_hash_of(const Record& record) {
  const std::uint64_t parts[] = {
      base::hash_bytes(&record, offsetof(Record, stale)), record.data_hash,
      base::hash_bytes(&record.stat, sizeof(Record) - offsetof(Record, stat)),
      base::hash_bytes(record.path_text(), record.path_length)};
  return base::hash_bytes(parts, sizeof parts);
}

bool header_is_sound(const Record& record, std::uint64_t available) {
  if (available < sizeof(Record) || record.magic != Record::k_magic ||
      record.version != Record::k_version)
    return false;
  if (record.path_length >= PATH_MAX || record.record_size > available) return false;
  if (record.data_offset < sizeof(Record) + record.path_length + 1 ||
      record.data_offset > record.record_size)
    return false;
  if (record.data_size > record.record_size - record.data_offset) return false;
  return record.header_hash == header_hash_of(record);
}

bool data_is_sound(const Record& record) {
  return base::hash_bytes(record.data(), record.data_size) == record.data_hash;
}

}  // namespace cube::cache
