// The paths and the stats of large files whose chunks are in the region. A chunk identifies its
// file only by a FileKey (chunks.h); a process that writes the chunk to a tier needs the path.
// There are as many rows as chunks, up to 4,096 of 1 KiB. If a file finds no free row, it replaces
// the one that was noted longest ago. Invariant: a path that is found is the one from which its key
// was computed. Rows are written without a lock, so a reader recomputes the key of what it has
// read. Thread-safe, across processes too. Async-signal-safe, no allocation.
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
  // False: there is no row of this key.
  bool find(const FileKey& key, Entry& name) const;

 private:
  struct Content;
  // The number of rows in which a key may be.
  static constexpr std::uint32_t k_ways = 8;

  LargePathRow& row_of(const FileKey& key, std::uint32_t way) const;
  static bool read(const LargePathRow& row, const FileKey& key, Content& content);

  Region* region_;
};

}  // namespace cube::cache
