// The regular files that a read has fetched in addition to the requested file. Returns only sound
// records at exactly the place that the index has for their path. Thread safety: one thread.
#pragma once

#include <climits>
#include <string_view>

#include "cache/pack/pack_mount.h"

namespace cube::cache {

class PackNeighbours {
 public:
  PackNeighbours(const PackMount& mount, const PackMount::Content& content);
  // `path`: the path under the prefix with which the program would open the file. The path is valid
  // until the next call.
  bool next(std::string_view& path, PackMount::Content& found);

 private:
  bool is_record(std::uint64_t offset, std::string_view& path, PackEntry& entry) const;

  const PackMount& mount_;
  const PackMount::Content& content_;
  std::uint64_t at_;     // the position in the pack
  base::OffStack path_;  // at most PATH_MAX bytes of the room are used
};

}  // namespace cube::cache
