// The paths and the stats of large files whose chunks are in the region. A chunk identifies its
// file only by a FileKey (chunks.h), but a process that writes the chunk to a tier needs the path.
// There are as many rows as chunks, but at most 4,096 rows of 1 KiB. A file has eight candidate
// rows. If none of them is free, the candidate that was noted longest ago is replaced. Invariant:
// find() returns only the path and the stat from which the key was computed. Rows are written
// without a lock, so a reader computes the key again from the row's content. Thread-safe, also
// across processes. Async-signal-safe, no allocation.
#pragma once

#include <string_view>

#include "cache/region/large/chunks.h"

namespace cube::cache {

class LargePaths {
 public:
  // The longest path that has room in a row, in bytes.
  static constexpr std::size_t k_longest = 800;
  struct Entry {
    FileStat stat;
    std::uint32_t length = 0;
    char text[k_longest + 1] = {};
    std::string_view path() const { return {text, length}; }
  };

  explicit LargePaths(Region& region) : region_(&region) {}

  // `key` is key_of_file(path, stat). False: the path is too long.
  bool note(const FileKey& key, std::string_view path, const FileStat& stat);
  // False: there is no row for this key.
  bool find(const FileKey& key, Entry& name) const;

 private:
  struct Content;
  // The number of candidate rows of a key.
  static constexpr std::uint32_t k_ways = 8;

  LargePathRow& row_of(const FileKey& key, std::uint32_t way) const;
  static bool read(const LargePathRow& row, const FileKey& key, Content& content);

  Region* region_;
};

}  // namespace cube::cache
