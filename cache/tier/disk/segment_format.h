// The format of a segment file of the disk tier (doc/FORMAT.md "Disk"): a header page, then records
// back to back in the format of record.h. A sealed file also has a footer: a table of the records,
// and a trailer at the very end. So a restart reads only the footers. Invariants: values that the
// checks below accept refer only to places inside the file. A file without a sound trailer was not
// sealed. Thread safety: plain values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cache/base/hash.h"
#include "cache/base/round.h"
#include "cache/record/recent_change.h"
#include "cache/record/record.h"

namespace cube::cache {

inline constexpr std::uint32_t k_disk_version = 1;
inline constexpr std::uint64_t k_disk_header_bytes = k_page;
// This limit follows from the index: a slot has 22 bits for an offset in units of 64 bytes.
inline constexpr std::uint64_t k_most_disk_segment_bytes = 256 << 20;
inline constexpr std::uint64_t k_least_disk_segment_bytes = 1 << 20;
inline constexpr std::uint32_t k_most_disk_number = 99'999'999;

struct DiskHeader {
  static constexpr std::uint64_t k_magic = 0x6765736b73696443ULL;  // "Cdiskseg"
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t number;  // the number in the file's name
  std::uint64_t job;     // the job that has written the file
  std::uint64_t created_ns;
  std::uint64_t reserved[3];  // zero
  std::uint64_t hash;         // xxh3 of everything before it
};

// A row for each record. If a record is dropped later, it is marked in its own header, because a
// footer never changes.
struct DiskFooterRow {
  std::uint64_t path_hash;
  std::uint64_t inode_hash;  // base::hash_inode of device and inode; 0 for a block
  std::uint32_t offset;      // from the start of the file, in units of 64 bytes
  std::uint32_t size;        // size of the record, in the same units
  std::uint32_t state;       // 0: valid; otherwise dropped before the file was sealed
  std::uint32_t reserved;    // zero

  // Whether the index has an entry by inode for the record, so that a change through another name
  // of the file finds it. Blocks have no such entry: a file may have thousands of blocks, and each
  // open compares them with the file's stat.
  bool has_inode() const { return inode_hash != 0; }
};

// Only whole files, blocks of large files (tier/block_record.h), and listings are kept on the disk.
inline bool is_kept_on_disk(RecordKind kind) {
  return kind == RecordKind::file || kind == RecordKind::block || kind == RecordKind::directory;
}

struct DiskTrailer {
  static constexpr std::uint64_t k_magic = 0x746f6f666b736944ULL;  // "Diskfoot"
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t number;
  std::uint64_t data_end;  // the end of the last record
  std::uint64_t rows_at;   // the offset of the table, a multiple of a page
  std::uint64_t row_count;
  std::uint64_t rows_hash;
  std::uint64_t reserved;  // zero
  std::uint64_t hash;      // xxh3 of everything before it
};

// The mark of a dropped record. Even if one byte of the mark is damaged, the record does not become
// valid again.
inline constexpr std::uint32_t k_disk_dropped = 0xffffffff;

static_assert(sizeof(DiskHeader) == 64 && sizeof(DiskFooterRow) == 32 && sizeof(DiskTrailer) == 64);
static_assert(std::is_trivially_copyable_v<DiskHeader> &&
              std::is_trivially_copyable_v<DiskTrailer>);

// The most bytes that the footer and the padding before it can take.
constexpr std::uint64_t most_footer_bytes(std::uint64_t row_count) {
  return k_page + base::round_up(row_count * sizeof(DiskFooterRow), sizeof(DiskTrailer)) +
         sizeof(DiskTrailer);
}
constexpr std::uint64_t trailer_offset(std::uint64_t rows_at, std::uint64_t row_count) {
  return rows_at + base::round_up(row_count * sizeof(DiskFooterRow), sizeof(DiskTrailer));
}

inline std::uint64_t hash_of(const DiskHeader& header) {
  return base::hash_bytes(&header, offsetof(DiskHeader, hash));
}
inline std::uint64_t hash_of(const DiskTrailer& trailer) {
  return base::hash_bytes(&trailer, offsetof(DiskTrailer, hash));
}

inline bool is_sound(const DiskHeader& header, std::uint32_t number) {
  return header.magic == DiskHeader::k_magic && header.version == k_disk_version &&
         header.number == number && header.hash == hash_of(header);
}

// Checks the trailer of a file of this size.
inline bool is_sound(const DiskTrailer& trailer, std::uint32_t number, std::uint64_t file_bytes) {
  if (trailer.magic != DiskTrailer::k_magic || trailer.version != k_disk_version ||
      trailer.number != number)
    return false;
  if (trailer.hash != hash_of(trailer) || file_bytes > 2 * k_most_disk_segment_bytes) return false;
  if (trailer.data_end < k_disk_header_bytes || trailer.rows_at < trailer.data_end ||
      trailer.rows_at % k_page != 0)
    return false;
  if (trailer.rows_at > file_bytes ||
      trailer.row_count > (file_bytes - trailer.rows_at) / sizeof(DiskFooterRow))
    return false;
  return trailer_offset(trailer.rows_at, trailer.row_count) + sizeof(DiskTrailer) == file_bytes;
}

// Whether the row names a range between the header page and the end of the records.
inline bool is_within(const DiskFooterRow& row, std::uint64_t data_end) {
  const std::uint64_t begin = std::uint64_t{row.offset} * k_record_alignment;
  const std::uint64_t bytes = std::uint64_t{row.size} * k_record_alignment;
  return begin >= k_disk_header_bytes && begin < k_most_disk_segment_bytes &&
         bytes >= sizeof(Record) && bytes <= data_end && begin <= data_end - bytes;
}

inline DiskFooterRow footer_row(const Record& record, std::uint64_t offset) {
  return {.path_hash = base::hash_path(record.path()),
          .inode_hash = record.kind == RecordKind::block
                            ? 0
                            : base::hash_inode(record.stat.device(), record.stat.inode),
          .offset = static_cast<std::uint32_t>(offset / k_record_alignment),
          .size = static_cast<std::uint32_t>(record.record_size / k_record_alignment),
          .state = 0,
          .reserved = 0};
}

}  // namespace cube::cache
