// Maps 64-bit hashes to records in segment files. The index is one file that all processes of the
// node map. The file has a header, a row for each segment file, and tables of buckets. A bucket is
// one cache line. When a table is full, a further table is added. A slot is one word: tag:16 |
// tentative:1 | size class:7 | segment:18 | offset:22. The offset is in units of 64 bytes. 0 is an
// empty slot. One compare-and-swap publishes a slot. If the row of a slot belongs to another
// segment now, the slot is dead and may be overwritten. Until confirm(), an entry is tentative:
// only changes of its file find it. Invariants: nothing outside the mapping is accessed, even if
// the file is corrupt. An index with another layout is not opened. An index of another boot is
// opened only if a process uses it, because a power cut may have torn it. If a page cannot be read,
// or lies past the end of a truncated file, it counts as empty and causes no SIGBUS. Thread-safe,
// also across processes. Lookups are async-signal-safe and allocate nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "cache/base/memory/mapping.h"
#include "cache/base/unique_fd.h"
#include "cache/tier/disk/segment_format.h"

namespace cube::cache {

enum class DiskSegmentState : std::uint32_t { free = 0, open = 1, sealed = 2, leaving = 3 };

struct alignas(64) DiskSegmentRow {
  std::atomic<std::uint64_t> word;         // number:32 | state:32
  std::atomic<std::uint64_t> job;          // the job that has written the file; 0: an earlier job,
                                           // or unknown
  std::atomic<std::uint64_t> touched_job;  // the job that has read the file last
  std::atomic<std::uint32_t> touched_s;    // the wall-clock time of the last read
  std::atomic<std::uint32_t> pages;        // bytes of the file, in pages
  std::atomic<std::uint32_t> records;      // includes records that were dropped later
  std::atomic<std::uint32_t> dropped;

  DiskSegmentState state() const {
    return static_cast<DiskSegmentState>(word.load(std::memory_order_acquire) & 0xffffffff);
  }
  std::uint32_t number() const {
    return static_cast<std::uint32_t>(word.load(std::memory_order_acquire) >> 32);
  }
  // The release pairs with the acquires above: a reader that sees the state sees the other fields,
  // too.
  void set(std::uint32_t number, DiskSegmentState state) {
    word.store((std::uint64_t{number} << 32) | static_cast<std::uint32_t>(state),
               std::memory_order_release);
  }
};

struct DiskGeometry {
  static constexpr std::uint32_t k_tables = 4;
  std::uint32_t row_count = 0;  // a power of two
  std::uint32_t zero = 0;
  std::uint64_t bucket_count[k_tables] = {};
  std::uint64_t table_at[k_tables] = {};
  std::uint64_t file_bytes = 0;
  friend bool operator==(const DiskGeometry&, const DiskGeometry&) = default;

  // Computes the sizes of an index. The first table has room for this many files; all tables
  // together have room for eight times as many.
  static DiskGeometry of(std::uint64_t files, std::uint64_t segments);
  static DiskGeometry of_sizes(std::uint64_t first_buckets, std::uint32_t row_count);
};

struct DiskBucket {
  static constexpr int k_slots = 8;
  std::atomic<std::uint64_t> slots[k_slots];
};
static_assert(sizeof(DiskBucket) == 64 && sizeof(DiskSegmentRow) == 64);

struct DiskIndexHeader {
  static constexpr std::uint64_t k_magic = 0x7865646e49736944ULL;  // "DisIndex"
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t boot;
  DiskGeometry geometry;
  std::uint64_t hash;  // the hash of the preceding fields
  std::atomic<std::uint32_t> tables;
  std::atomic<std::uint32_t> next_number;
};
static_assert(std::is_standard_layout_v<DiskIndexHeader> && sizeof(DiskIndexHeader) <= k_page);

struct DiskPlace {
  std::uint32_t number = 0;         // the number of the segment file
  std::uint64_t offset = 0;         // the offset of the record in the file
  std::uint64_t bytes_at_most = 0;  // at least the size of the record
  bool is_of_this_run = false;      // written by the running job, so the origin need not be asked
  // The length of the read of the record. The read begins and ends at page boundaries.
  std::uint64_t buffer_bytes() const {
    return base::round_up(offset % k_page + bytes_at_most, k_page);
  }
  bool is_same(const DiskPlace& other) const {
    return number == other.number && offset == other.offset;
  }
};

class DiskIndex {
 public:
  static constexpr std::uint64_t k_tentative = 1ULL << 47;

  // Creates an empty index at `path`, with room for the rows and the first table. A
  // DiskIndexBuilder may then fill it.
  static base::Result<DiskIndex> create(const char* path, const DiskGeometry& geometry,
                                        std::uint64_t boot);
  // Opens an existing index. EBADMSG: the file is not a sound index with this layout. ESTALE: the
  // index belongs to another boot, and no process uses it.
  static base::Result<DiskIndex> open(const char* path, std::uint64_t boot);
  // Creates an index in memory that only this process uses.
  static base::Result<DiskIndex> create_private(const DiskGeometry& geometry);
  // A number that identifies this boot; 0: unknown.
  static std::uint64_t current_boot();

  // Call it in a forked child. The object must not be used afterwards.
  void unmap() { mapping_.reset(); }
  // Whether the file is also used by another process, or by another DiskIndex of this process.
  bool is_shared() const { return is_shared_; }
  const DiskGeometry& geometry() const { return geometry_; }
  DiskIndexHeader& header() const { return *reinterpret_cast<DiskIndexHeader*>(mapping_.data()); }
  DiskSegmentRow& row(std::uint32_t i) const {
    return reinterpret_cast<DiskSegmentRow*>(mapping_.data() + k_page)[i];
  }
  DiskSegmentRow& row_of(std::uint32_t number) const {
    return row(number & (geometry_.row_count - 1));
  }
  // The number of bytes at the start of the file for which room on the disk is reserved.
  std::uint64_t reserved_bytes() const { return end_of_tables(tables()); }
  // The size of the next table in bytes; 0: no further table is possible.
  std::uint64_t next_table_bytes() const;
  // Whether the header and the rows can be read. If the file may have been truncated, call this
  // before any other function.
  bool is_there() const;

  static std::uint64_t word_of(std::uint64_t hash, std::uint32_t number, std::uint64_t offset,
                               std::uint64_t bytes);

  // Calls visit(place, word) for each live entry that may have this hash.
  template <typename Visit>
  void visit(std::uint64_t hash, Visit&& visit) const {
    if (!can_read(mapping_.data())) return;
    for (std::uint32_t t = 0, n = tables(); t < n; ++t) {
      for (const std::uint64_t b : {first_bucket(hash, t), second_bucket(hash, t)}) {
        const DiskBucket& bucket = table(t)[b];
        if (!can_read(&bucket)) continue;
        for (const auto& slot : bucket.slots) {
          // Pairs with the compare-and-swap in insert.
          const std::uint64_t word = slot.load(std::memory_order_seq_cst);
          if (word == 0 || (word >> 48) != (hash & 0xffff) || !can_read(&row_of(number_in(word))))
            continue;
          if (DiskPlace place; is_living(word, place)) visit(place, word);
        }
      }
    }
  }

  // Adds an entry. ENOSPC: all buckets of this hash are full of live entries.
  base::Result<void> insert(std::uint64_t hash, std::uint64_t word);
  // Makes a tentative entry visible to lookups. Returns false if the entry was removed.
  bool confirm(std::uint64_t hash, std::uint64_t word);
  // Removes an entry. Returns true if there was one, confirmed or not.
  bool remove(std::uint64_t hash, std::uint32_t number, std::uint64_t offset);
  // Reserves room for one more table. Does nothing if there are already more than `known` tables.
  // `path` is the path of the file, or null for a private index.
  base::Result<void> add_table(const char* path, std::uint32_t known);
  std::uint32_t tables() const;

  // Whether the page at this address can be read or written. Raises no signal, even if the file
  // ends before the page, or if the disk is full.
  static bool can_read(const void* at);
  static bool can_write(const void* at);

 private:
  friend class DiskIndexBuilder;
  using Slot = std::atomic<std::uint64_t>;

  std::uint64_t end_of_tables(std::uint32_t n) const {
    return n < DiskGeometry::k_tables ? geometry_.table_at[n] : geometry_.file_bytes;
  }
  DiskBucket* table(std::uint32_t i) const {
    return reinterpret_cast<DiskBucket*>(mapping_.data() + geometry_.table_at[i]);
  }
  static std::uint64_t reduce(std::uint32_t part, std::uint64_t n) {
    return (std::uint64_t{part} * n) >> 32;
  }
  std::uint64_t first_bucket(std::uint64_t hash, std::uint32_t t) const {
    return reduce(static_cast<std::uint32_t>(hash >> 32), geometry_.bucket_count[t]);
  }
  std::uint64_t second_bucket(std::uint64_t hash, std::uint32_t t) const {
    const std::uint64_t n = geometry_.bucket_count[t];
    const std::uint64_t b =
        reduce(static_cast<std::uint32_t>((hash * 0x9e3779b97f4a7c15ULL) >> 32), n);
    // The two buckets of a hash differ, so that no entry is visited twice.
    return b != first_bucket(hash, t) ? b : (b + 1) % n;
  }
  static std::uint32_t number_in(std::uint64_t word) {
    return static_cast<std::uint32_t>((word >> 22) & 0x3ffff);
  }
  bool is_living(std::uint64_t word, DiskPlace& place) const;
  Slot* slot_for(std::uint64_t hash, std::uint64_t& expected) const;
  static base::Result<DiskIndex> map(int fd, const DiskGeometry& geometry);
  base::Result<void> populate(std::uint64_t from, std::uint64_t to) const;
  // Opens the file again by its path. ESTALE: another file has this path now.
  base::Result<base::UniqueFd> reopen(const char* path) const;
  void format(std::uint64_t boot) const;

  base::Mapping
      mapping_;  // keeps a shared flock on its file, even without an fd, as long as it exists
  DiskGeometry geometry_;
  std::uint64_t device_ = 0, inode_ = 0;
  bool is_shared_ = false;
};

}  // namespace cube::cache
