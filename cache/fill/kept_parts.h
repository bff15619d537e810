// The bytes of a file that a program has read in part (partial_fill.h). They stay in kept
// chunks of the region for the next open, until a record holds the whole file or the memory is
// wanted for something else (chunks_kept.cc). Thread-safe, across processes too; the caller blocks
// signals. Invariant: bytes are kept only of a version of the file that its stat identifies
// reliably.
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
  // False: files are not served in blocks.
  bool may_keep() const { return parts_.rules.block != 0; }
  // Keeps n bytes from `at` on; both are multiples of a page, or the bytes end with the file.
  // False: there is no room.
  bool keep(const std::byte* from, std::uint64_t at, std::uint64_t n);
  // Copies n bytes from `at` on. False: not all of them are kept.
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
