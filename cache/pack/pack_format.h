// The format of a packed data set, FILE.cube: a header page, segments of records
// (cache/record/record.h), the index, and a footer. doc/FORMAT.md describes the fields. Paths are
// relative to the pack's root; the path of the root itself is empty. Entries are in the order of
// their names' bytes, and the contents of a directory precede the directory itself. Packing a tree
// twice yields the same bytes, because nothing in the file depends on the time or place of packing.
// Thread safety: pure functions, plain values.
#pragma once

#include <climits>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "cache/base/hash.h"
#include "cache/record/file_stat.h"
#include "cache/record/record.h"

namespace cube::cache {

inline constexpr std::uint32_t k_pack_version = 1;
// A record that fits into a segment lies within one segment. A larger record begins at the start of
// a segment.
inline constexpr std::uint64_t k_pack_segment = 4 << 20;
inline constexpr std::uint64_t k_pack_records_begin = k_page;

struct PackHeader {
  static constexpr std::uint64_t k_magic = 0x4b43415045425543;  // "CUBEPACK"
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t
      table_bits;  // the index has a bucket for each value of the upper table_bits bits of a hash
  std::uint64_t segment_bytes, records_begin, records_end;
  std::uint64_t index_begin, index_bytes;
  std::uint64_t entries, files, directories, links;
  std::uint64_t data_bytes;  // the total size of the files
  std::uint64_t file_bytes;  // the size of the pack
  std::uint64_t index_hash;
  std::uint64_t reserved;     // zero
  std::uint64_t header_hash;  // xxh3 of the preceding bytes
};
static_assert(sizeof(PackHeader) == 128 && std::is_trivially_copyable_v<PackHeader>);

// While a pack is being made, the journal is in the place of the header. The journal records which
// part of the pack is safe on the disk.
struct PackJournal {
  static constexpr std::uint64_t k_magic = 0x5452415045425543;  // "CUBEPART"
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t reserved;
  std::uint64_t arguments_hash;
  std::uint64_t safe_end;  // the records before it were on the disk when the journal was written
  std::uint64_t hash;      // xxh3 of the preceding bytes
};
static_assert(sizeof(PackJournal) == 40);

struct PackFooter {
  static constexpr std::uint64_t k_magic = 0x444e455045425543;  // "CUBEPEND"
  std::uint64_t magic, entries, file_bytes;
  std::uint64_t content_hash;  // xxh3 of the header's hash and the index's hash
  std::uint64_t reserved[3];   // zero
  std::uint64_t footer_hash;   // xxh3 of the preceding bytes
};
static_assert(sizeof(PackFooter) == 64);

// The index consists of a table and the sorted slots. The table has (1 << table_bits) + 1 numbers:
// the first slot of each bucket, and the end of the last bucket.
struct PackSlot {
  std::uint64_t hash;    // the hash of the path
  std::uint64_t offset;  // the offset of the record in the pack
  std::uint64_t bytes;   // the size of the record
  friend auto operator<=>(const PackSlot&, const PackSlot&) = default;
};
static_assert(sizeof(PackSlot) == 24);

// Returns table_bits for this number of entries. A bucket then has fewer than 64 slots on average,
// so it lies on one or two pages.
constexpr std::uint32_t pack_table_bits(std::uint64_t entries) {
  std::uint32_t bits = 0;
  while (entries >> bits >= 64) ++bits;
  return bits;
}
constexpr std::uint64_t pack_table_bytes(std::uint32_t bits) {
  return ((1ULL << bits) + 1) * sizeof(std::uint64_t);
}
constexpr std::uint64_t pack_bucket(std::uint64_t hash, std::uint32_t bits) {
  return bits == 0 ? 0 : hash >> (64 - bits);
}

// The start of the data of a directory's record. The entries follow, in the order of their names'
// bytes: for each entry a PackName, the name, and a zero.
struct PackListing {
  static constexpr std::uint32_t k_complete = 1;  // no entry of the origin's directory was left out
  std::uint32_t flags, reserved;
  std::uint64_t count;
};
struct PackName {
  std::uint64_t inode;
  std::uint16_t length;
  std::uint8_t type;  // DT_REG, DT_DIR or DT_LNK
  std::uint8_t reserved[5];
};
static_assert(sizeof(PackListing) == 16 && sizeof(PackName) == 16);

// Reads a listing whose bytes may be damaged. next() returns false at the end. After that,
// is_sound() returns whether the listing was complete and undamaged.
class PackListingReader {
 public:
  explicit PackListingReader(std::string_view data);
  bool next(std::string_view& name, PackName& entry);
  bool is_sound() const { return is_sound_; }
  bool is_complete() const { return (head_.flags & PackListing::k_complete) != 0; }

 private:
  std::string_view rest_;
  PackListing head_{};
  std::uint64_t left_ = 0;
  bool is_sound_ = false;
};

// Whether a pack can contain this path. The path must be relative and shorter than PATH_MAX,
// without zero bytes and without components that are empty, "." or "..".
bool is_pack_path(std::string_view path);
// Whether a name can be a component of a path in a pack.
bool is_pack_name(std::string_view name);

// The part of the origin's stat that a pack contains. Fields that differ from mount to mount or
// from read to read are left out. `device` replaces the device number: it is a number within the
// pack, so that hard links can still be recognized.
FileStat packed_stat(FileStat stat, std::uint32_t device);

// The place of the next record in a pack whose first `fill` bytes are used.
RecordPlan place_record_in_pack(std::uint64_t fill, std::uint64_t path_length,
                                std::uint64_t data_size);

inline std::uint64_t hash_of(const PackHeader& header) {
  return base::hash_bytes(&header, offsetof(PackHeader, header_hash));
}
inline std::uint64_t hash_of(const PackJournal& journal) {
  return base::hash_bytes(&journal, offsetof(PackJournal, hash));
}
inline std::uint64_t hash_of(const PackFooter& footer) {
  return base::hash_bytes(&footer, offsetof(PackFooter, footer_hash));
}
PackFooter footer_of(const PackHeader& header);

}  // namespace cube::cache
