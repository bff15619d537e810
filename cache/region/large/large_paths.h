// The paths and the stats of large files whose chunks are in the region. A chunk identifies its
// file only by a FileKey (chunks.h), but a process that writes the chunk to a tier needs the path.
// There are as many rows as chunks, but at most 4,096 rows of 1 KiB. If no row is free for a file,
// the row that was noted longest ago is replaced. Invariant: a key is found only together with the
// path and stat from which it was computed. Rows are written without a lock, so a reader recomputes
// the key from the row's content. Thread-safe, also across processes. Async-signal-safe, no
// allocation.
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
  // The number of rows in which a key can be.
  static constexpr std::uint32_t k_ways = 8;

  LargePathRow& row_of(const FileKey& key, std::uint32_t way) const;
  static bool read(const LargePathRow& row, const FileKey& key, Content& content);

  Region* region_;
};

}  // namespace cube::cache
