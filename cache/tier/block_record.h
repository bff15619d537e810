// Stores a block of a large file as a record of a tier. The record has the stat of the file, the
// bytes of the block, and a path that no file has: PATH//BLOCKBYTES/NUMBER. Thread safety: plain
// values and pure functions; async-signal-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "cache/tier/tier.h"

namespace cube::cache {

// All blocks of a file have the same size, a power of two, except the last one, which ends with the
// file.
struct BlockPlace {
  std::uint64_t block_bytes = 0, number = 0;
  std::uint64_t begin() const { return number * block_bytes; }
  // The bytes of this block in a file of this size.
  std::uint64_t bytes(std::uint64_t file_size) const {
    return begin() < file_size ? std::min(block_bytes, file_size - begin()) : 0;
  }
};

class BlockName {
 public:
  BlockName(std::string_view path, const BlockPlace& place);
  // Empty if the path is too long.
  std::string_view text() const { return {text_, length_}; }

 private:
  static constexpr std::size_t k_longest = 1024;
  std::size_t length_ = 0;
  char text_[k_longest];
};

// Decides whether the bytes of this record are what the block of the file holds, given that the
// origin reports this stat for the file.
Tier::Verdict compare_block(const Record& record, const FileStat& stat, const BlockPlace& place);
// Like compare_block above, but for a record that Tier::visit of `tier` has passed: the tier
// decides whether it is of the file's version.
Tier::Verdict compare_block(Tier& tier, const Record& record, const FileStat& stat,
                            const BlockPlace& place);

// plan_block computes the size and place of the block's record in a buffer of which `fill` bytes
// are used; write_block writes it. `fetched_ns` is a time of the wall clock: any change of the file
// after it shows in the file's times.
RecordPlan plan_block(std::uint64_t fill, const BlockName& name, const BlockPlace& place,
                      const FileStat& stat);
struct BlockContent {
  const BlockName& name;
  BlockPlace place;
  const FileStat& stat;
  const std::byte* data;
  std::uint64_t fetched_ns;
};
void write_block(std::byte* buffer, const RecordPlan& plan, const BlockContent& content);

}  // namespace cube::cache
