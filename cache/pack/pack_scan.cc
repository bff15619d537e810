#include "cache/pack/pack_scan.h"

#include <algorithm>
#include <cstring>

#include "cache/pack/pack_io.h"
#include "cache/record/record_hash.h"

namespace cube::cache {

bool read_pack_head(const std::byte* bytes, std::size_t got, std::uint64_t offset,
                    std::uint64_t end, PackEntry& entry, std::string_view& path) {
  if (got < sizeof(Record) || offset > end) return false;
  const auto& record = *reinterpret_cast<const Record*>(bytes);
  // Must precede header_is_sound, which reads the path.
  if (record.path_length >= PATH_MAX || sizeof(Record) + record.path_length >= got) return false;
  if (!header_is_sound(record, end - offset)) return false;
  if (record.kind != RecordKind::file && record.kind != RecordKind::directory &&
      record.kind != RecordKind::link)
    return false;
  if (record.kind == RecordKind::file && record.data_size != record.stat.size) return false;
  if (record.kind == RecordKind::link && (record.data_size == 0 || record.data_size >= PATH_MAX))
    return false;
  path = record.path();
  if (!is_pack_path(path) || (path.empty() && record.kind != RecordKind::directory)) return false;
  entry.offset = offset;
  entry.bytes = record.record_size;
  entry.data_offset = offset + record.data_offset;
  entry.data_size = record.data_size;
  entry.data_hash = record.data_hash;
  entry.kind = record.kind;
  entry.stat = record.stat;
  return true;
}

const std::byte* PackScan::look(std::uint64_t at, std::size_t n, std::size_t& got) {
  n = static_cast<std::size_t>(std::min<std::uint64_t>(n, end_ - at));
  if (at < window_at_ || at + n > window_at_ + window_bytes_) {
    if (window_ == nullptr) window_ = std::make_unique<std::byte[]>(k_window);
    // If the next record is far away, after large data, reads only its head.
    const bool is_near = at < window_at_ + window_bytes_ + k_window / 4;
    const std::uint64_t wanted = std::max<std::uint64_t>(n, is_near ? k_window : k_short_window);
    const auto read =
        read_at(fd_, window_.get(), static_cast<std::size_t>(std::min(wanted, end_ - at)), at);
    if (!read) {
      error_ = read.error().value;
      return nullptr;
    }
    window_at_ = at;
    window_bytes_ = *read;
  }
  got = static_cast<std::size_t>(std::min<std::uint64_t>(n, window_at_ + window_bytes_ - at));
  return window_.get() + (at - window_at_);
}

PackScan::Next PackScan::next(PackEntry& entry, std::string_view& path) {
  static constexpr std::byte k_zeros[k_record_alignment]{};
  if (last_ != Next::record) return last_;
  // Skips padding, which consists of zeros. No record begins with zeros.
  for (std::uint64_t at = (at_ + k_record_alignment - 1) / k_record_alignment * k_record_alignment;
       at < end_; at += k_record_alignment) {
    std::size_t got = 0;
    const std::byte* bytes = look(at, k_record_alignment, got);
    if (bytes != nullptr && got == k_record_alignment &&
        std::memcmp(bytes, k_zeros, k_record_alignment) == 0)
      continue;
    if (bytes != nullptr) bytes = look(at, k_most_pack_head, got);
    if (bytes != nullptr && read_pack_head(bytes, got, at, end_, entry, path)) {
      const RecordPlan plan = place_record_in_pack(at_, path.size(), entry.data_size);
      if (plan.start == at && plan.end == entry.end() && plan.data == entry.data_offset) {
        at_ = entry.end();
        return Next::record;
      }
    }
    last_ = Next::damaged;
    return last_;
  }
  last_ = Next::end;
  return last_;
}

}  // namespace cube::cache
