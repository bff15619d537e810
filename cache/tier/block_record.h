// The form in which a tier stores a block of a large file: a record with the stat of the file, the
// bytes of the block, and a path that no file can have (PATH//BLOCKBYTES/NUMBER). Thread safety:
// plain values and pure functions; async-signal-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "cache/tier/tier.h"

namespace cube::cache {

// The place of a block in a file. All blocks have the same size, a power of two, except the last
// block, which ends with the file.
struct BlockPlace {
  std::uint64_t block_bytes = 0, number = 0;
  std::uint64_t begin() const { return number * block_bytes; }
  // The number of bytes of this block in a file of this size.
  std::uint64_t bytes(std::uint64_t file_size) const {
    return begin() < file_size ? std::min(block_bytes, file_size - begin()) : 0;
  }
};

class BlockName {
 public:
  BlockName(std::string_view path, const BlockPlace& place);
  // The path of the record. Empty: the path is too long.
  std::string_view text() const { return {text_, length_}; }

 private:
  static constexpr std::size_t k_longest = 1024;
  std::size_t length_ = 0;
  char text_[k_longest];
};

// Compares the record of a block with the origin's stat of the file, and decides whether the record
// has the current bytes of the block.
Tier::Verdict compare_block(const Record& record, const FileStat& stat, const BlockPlace& place);
// Like compare_block above, but for a record that `tier` has passed to a Judge. The tier decides
// whether the record has the right version of the file.
Tier::Verdict compare_block(Tier& tier, const Record& record, const FileStat& stat,
                            const BlockPlace& place);

// plan_block computes the place of a block's record in a buffer whose first `fill` bytes are used.
// write_block writes the record there. `fetched_ns` is the wall-clock time at which the bytes were
// present. If a later change of the file could leave its times unchanged, compare_block does not
// take the record.
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
