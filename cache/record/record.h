// The one binary format of the project (doc/FORMAT.md): a header, the full path, and the data.
// Records begin on a multiple of 64 bytes. Data of 32 KiB or more begins on a page, and zeros fill
// its last page, so that the data can be mapped. If a program has mapped a file, the file's data is
// laid out in this way at any size. Invariant: if an index names a record, the record is complete,
// and only its marks may change. Thread safety: everything is immutable after publication, except
// the marks, which are atomics.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "cache/record/file_stat.h"

namespace cube::cache {

inline constexpr std::uint64_t k_record_alignment = 64;
inline constexpr std::uint64_t k_page = 4096;
// Smaller data is not laid out for mapping until a program maps the file, because the padding costs
// a page and a half for each file.
inline constexpr std::uint64_t k_mappable_from = 32 << 10;

// The origin of a record: k_mounts, or the id of an immutable origin. If an immutable origin
// changes, its id changes, too (cache/origin/origin.h).
using OriginId = std::uint32_t;
inline constexpr OriginId k_mounts = 0;

enum class RecordKind : std::uint8_t {
  file = 1,
  stat = 2,
  directory = 3,
  link = 4,
  absent = 5,
  block = 6
};

struct Record {
  static constexpr std::uint32_t k_magic = 0x45425543;  // "CUBE"
  static constexpr std::uint16_t k_version = 1;
  // The path contains no symbolic link, so lstat and O_NOFOLLOW also lead to this file.
  static constexpr std::uint8_t k_flag_physical = 1;
  static constexpr std::uint8_t k_flag_mappable = 2;
  // The record was prefetched. Its first open is noted (cache/region/ring.h).
  static constexpr std::uint8_t k_flag_prefetched = 4;
  // The bytes came from the disk tier, which still has them. So the record is neither written to
  // the disk nor looked up there.
  static constexpr std::uint8_t k_flag_from_disk = 8;
  // The bytes came from another node, and the cluster still has them.
  static constexpr std::uint8_t k_flag_from_cluster = 16;
  // The marks in `stale`. k_changed, without the following marks: the origin now has something else
  // at the path. k_in_place: a process of the node has reported that the bytes of the file itself
  // have changed. k_removed: a process of the node has reported that the name now refers to another
  // file or to none. k_in_place and k_removed are set only together with k_changed. k_unlinked is
  // set only together with k_removed: the file may be gone, and its inode may belong to another
  // file. k_removed without k_unlinked: the file still has another name. k_replaced: another record
  // of the same version has replaced this record in the index, and only that record gets further
  // marks.
  static constexpr std::uint32_t k_changed = 1, k_unconfirmed = 2, k_in_place = 4, k_removed = 8,
                                 k_replaced = 16, k_unlinked = 32,
                                 k_gone = k_changed | k_removed | k_unlinked;

  // The first cache line holds everything that a lookup needs.
  std::uint32_t magic;
  std::uint16_t version;
  RecordKind kind;
  std::uint8_t flags;
  std::uint32_t path_length;  // bytes, without the terminating zero that follows the path
  std::uint32_t data_offset;  // the offset from the start of the record
  std::uint64_t data_size;    // bytes
  std::uint64_t record_size;  // bytes, all padding included
  // The marks. No hash covers them, because they can change after publication.
  std::atomic<std::uint32_t>
      stale;  // the marks above; k_unconfirmed until the fetcher has checked for writers
  std::atomic<std::uint32_t>
      views;  // a bit for each view (base/process/view.h) in which this path has led to this file
  std::atomic<std::uint64_t> verified_ns;  // base::boot_ns of the last request to the origin
  std::uint64_t data_hash;                 // xxh3 of the data
  std::uint64_t header_hash;               // see header_hash_of

  FileStat stat;
  std::uint64_t fetched_ns;  // wall clock
  OriginId origin;
  std::uint32_t reserved_word;  // zero
  // Hashes that identify the job and the node that have read the file. Both hashes are zero except
  // in the cluster (cache/tier/shared/cluster_tier.h).
  std::uint64_t job_tag, node_tag;
  std::uint64_t rights;  // base::current_rights() of a process that has opened the file by this
                         // path; 0: not known

  std::string_view path() const { return {reinterpret_cast<const char*>(this + 1), path_length}; }
  const char* path_text() const { return reinterpret_cast<const char*>(this + 1); }
  const std::byte* data() const { return reinterpret_cast<const std::byte*>(this) + data_offset; }
  bool is_physical() const { return (flags & k_flag_physical) != 0; }
  // If not, the file may still exist when this path no longer leads to it: perhaps only this name,
  // or a link in the path, was removed.
  bool has_only_this_name() const { return is_physical() && stat.links <= 1; }
  bool is_mappable() const { return (flags & k_flag_mappable) != 0; }
  bool is_prefetched() const { return (flags & k_flag_prefetched) != 0; }
  bool is_from_disk() const { return (flags & k_flag_from_disk) != 0; }
  bool is_from_cluster() const { return (flags & k_flag_from_cluster) != 0; }
  // Whether the kernel also has a file at this path.
  bool is_in_kernel() const { return origin == k_mounts; }
  // Pairs with the release in RamTier::mark_stale.
  bool is_stale() const { return stale.load(std::memory_order_acquire) != 0; }
  bool has_changed() const { return (stale.load(std::memory_order_acquire) & k_changed) != 0; }
  bool was_replaced() const { return (stale.load(std::memory_order_acquire) & k_replaced) != 0; }
  bool was_changed_in_place() const {
    return (stale.load(std::memory_order_acquire) & k_in_place) != 0;
  }
  bool may_be_gone() const { return (stale.load(std::memory_order_acquire) & k_unlinked) != 0; }
  bool has_lost_its_name() const {
    return (stale.load(std::memory_order_acquire) & k_removed) != 0;
  }
  bool has_only_lost_its_name() const {
    return (stale.load(std::memory_order_acquire) & (k_in_place | k_removed)) == k_removed;
  }
  // Relaxed: a process sets only the bit of its own view. A bit is cleared only if no process has
  // its view any longer.
  bool is_seen_by(std::uint32_t view) const {
    return (views.load(std::memory_order_relaxed) & view) != 0;
  }
  // Whether only one view has seen the record. If so, the mount id in the stat is valid for all
  // readers of the record.
  bool has_one_view() const { return std::has_single_bit(views.load(std::memory_order_relaxed)); }
};
static_assert(sizeof(Record) == 256 && offsetof(Record, stat) == 64 &&
              std::is_standard_layout_v<Record>);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// The place of a record in a segment, as offsets from the segment's start. plan_record puts the
// record behind the first `fill` bytes, which are in use.
struct RecordPlan {
  std::uint64_t start = 0, data = 0, end = 0;
  bool mappable = false;
};
enum class RecordShape : std::uint8_t {
  by_size,  // laid out for mapping from k_mappable_from on
  mappable,
  compact  // never mapped
};
RecordPlan plan_record(std::uint64_t fill, std::uint64_t path_length, std::uint64_t data_size,
                       RecordShape shape = RecordShape::by_size);

struct RecordContent {
  RecordKind kind = RecordKind::file;
  std::string_view path;
  FileStat stat;
  bool physical = false;
  bool prefetched = false;
  bool from_disk = false;
  bool from_cluster = false;
  OriginId origin = k_mounts;
  std::optional<std::uint64_t> data_size = {};  // bytes; empty: the stat's size
  std::optional<std::uint64_t> data_hash = {};  // the verified hash; empty: not computed yet
  std::uint64_t fetched_ns = 0;                 // wall clock: the start of the fetch
  std::uint64_t verified_ns = 0;                // base::boot_ns
  std::uint64_t job_tag = 0, node_tag = 0;
  std::uint64_t rights = 0;
  std::uint32_t views = 0;  // the views that get the record, besides the publisher's view
};
// Writes a record around data that is already in its place. `plan` is the result of plan_record.
void write_record(std::byte* segment, const RecordPlan& plan, const RecordContent& content);
// Writes only the start of a record: the header, the path, and the zeros before the data. Used for
// data that is never in memory as a whole.
struct RecordData {
  std::uint64_t size = 0, hash = 0;
};
void write_record_head(std::byte* start, const RecordPlan& plan, const RecordContent& content,
                       const RecordData& data);

}  // namespace cube::cache
