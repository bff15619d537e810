// Fills an index that nobody else knows of yet: in memory, a window of its tables at a time, each
// written to the file in one go. Entry by entry into the mapped file, most of them would be a page
// fault as soon as the kernel writes the first pages back. One pass adds all entries and fills the
// first window; a larger index takes further passes with the same entries in the same order.
// Invariants: where entries go depends on nothing but them and their order; if they are not the
// same in a later pass, some are lost, or there twice. No more memory than k_most_window and a byte
// for each bucket. Thread safety: one thread.
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

  // `path`: where its file lies; null: the index is this process's own, and filled where it lies.
  // `most_window`: for tests.
  static base::Result<DiskIndexBuilder> create(DiskIndex& index, const char* path,
                                               std::uint64_t most_window = k_most_window);

  // False: there is no room for it in any table.
  bool add(std::uint64_t hash, std::uint64_t word);
  // For records that are added soon.
  void prefetch(std::uint64_t hash) const {
    __builtin_prefetch(&fill_of(0, index_->first_bucket(hash, 0)), 1);
    __builtin_prefetch(&fill_of(0, index_->second_bucket(hash, 0)), 1);
  }
  // True: all have to be added once more, for the next window.
  base::Result<bool> end_pass();

 private:
  DiskIndexBuilder(DiskIndex& index, const char* path) : index_(&index), path_(path) {}
  // How many slots of this bucket are taken.
  std::uint8_t& fill_of(std::uint32_t table, std::uint64_t bucket) const {
    return reinterpret_cast<std::uint8_t&>(fills_.data()[first_fill_[table] + bucket]);
  }
  void put(std::uint64_t at, std::uint64_t word);
  base::Result<void> write_window(std::uint64_t bytes) const;

  DiskIndex* index_;
  const char* path_;
  base::Mapping window_, fills_;
  std::byte* slots_ = nullptr;           // the window, or the tables themselves
  std::uint64_t begin_ = 0, bytes_ = 0;  // of the window, behind the start of the first table
  struct Waiting {
    std::byte* slot = nullptr;
    std::uint64_t word = 0;
  };
  std::array<Waiting, 32> waiting_;
  std::size_t next_waiting_ = 0;
  std::uint64_t first_fill_[DiskGeometry::k_tables] = {};
  std::uint32_t most_tables_ = DiskGeometry::k_tables;  // less when a further one got no room
};

}  // namespace cube::cache
