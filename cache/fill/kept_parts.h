// The bytes of a file that a program has read only in part (partial_fill.h). Kept chunks of the
// region hold them for the next open. The bytes are dropped when a record contains the whole file,
// or when the memory is needed for something else (chunks_kept.cc). Thread-safe, also across
// processes; the caller must block signals. Invariant: bytes are kept only if the stat of the file
// identifies its version reliably.
#pragma once

#include "cache/fill/cache_parts.h"
#include "cache/region/large/chunks.h"

namespace cube::cache {

class KeptParts {
 public:
  KeptParts(CacheParts& parts, std::string_view path, const FileStat& stat)
      : parts_(parts), chunks_(parts.region), key_(key_of_file(path, stat)), stat_(stat) {}

  // Whether the region has any chunks.
  static bool may_be_any(const Region& region) {
    return region.header().has_chunks.load(std::memory_order_relaxed) != 0;
  }
  // False: no bytes are kept, because files are not served in blocks.
  bool may_keep() const { return parts_.rules.block != 0; }
  // Keeps `n` bytes from offset `at` on. `at` must be a multiple of the page size. `n` must be one
  // too, except at the end of the file. False: there is no room.
  bool keep(const std::byte* from, std::uint64_t at, std::uint64_t n);
  // Copies `n` bytes from offset `at` on to `to`. False: some of these bytes are not kept.
  bool take(std::byte* to, std::uint64_t at, std::uint64_t n) const;
  void drop();

 private:
  bool keep_block(const std::byte* from, std::uint64_t at, std::uint64_t end);

  CacheParts& parts_;
  Chunks chunks_;
  const FileKey key_;
  const FileStat& stat_;
};

}  // namespace cube::cache
