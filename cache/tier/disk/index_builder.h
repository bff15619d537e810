// Fills an index that no other process has opened yet. The builder fills one part of the tables (a
// window) in memory, and writes this part to the file as a whole. Storing each entry directly into
// the mapped file would be slow: as soon as the kernel writes pages back, most entries would cost a
// page fault. The first pass adds all entries, and fills the first window. A larger index needs a
// pass for each further window, with the same entries in the same order. Invariants: the place of
// an entry depends only on the entries and their order. If a later pass differs, some entries are
// lost or stored twice. The builder uses at most k_most_window bytes of memory, and one byte for
// each bucket. Thread safety: one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cache/base/memory/mapping.h"
#include "cache/tier/disk/disk_index.h"

namespace cube::cache {

class DiskIndexBuilder {
 public:
  static constexpr std::uint64_t k_most_window = 1 << 30;

  // `path` is the path of the index file. Null: the index is private to this process, and is filled
  // in place. `most_window` is a parameter only for tests.
  static base::Result<DiskIndexBuilder> create(DiskIndex& index, const char* path,
                                               std::uint64_t most_window = k_most_window);

  // Returns false if no table has room for the entry.
  bool add(std::uint64_t hash, std::uint64_t word);
  // Call it some time before add() for the same entry, to make add() faster.
  void prefetch(std::uint64_t hash) const {
    __builtin_prefetch(&fill_of(0, index_->first_bucket(hash, 0)), 1);
    __builtin_prefetch(&fill_of(0, index_->second_bucket(hash, 0)), 1);
  }
  // Ends a pass. Returns true if all entries must be added once more, for the next window.
  base::Result<bool> end_pass();

 private:
  DiskIndexBuilder(DiskIndex& index, const char* path) : index_(&index), path_(path) {}
  // The number of used slots in this bucket.
  std::uint8_t& fill_of(std::uint32_t table, std::uint64_t bucket) const {
    return reinterpret_cast<std::uint8_t&>(fills_.data()[first_fill_[table] + bucket]);
  }
  void put(std::uint64_t at, std::uint64_t word);
  base::Result<void> write_window(std::uint64_t bytes) const;

  DiskIndex* index_;
  const char* path_;
  base::Mapping window_, fills_;
  std::byte* slots_ = nullptr;           // the window, or the tables themselves
  std::uint64_t begin_ = 0, bytes_ = 0;  // the window, relative to the start of the first table
  struct Waiting {
    std::byte* slot = nullptr;
    std::uint64_t word = 0;
  };
  std::array<Waiting, 32> waiting_;
  std::size_t next_waiting_ = 0;
  std::uint64_t first_fill_[DiskGeometry::k_tables] = {};
  std::uint32_t most_tables_ = DiskGeometry::k_tables;  // lower if there was no room for a further
                                                        // table
};

}  // namespace cube::cache
