// Changes of files that this process makes: no tier serves what was there before. Thread safety:
// all of it; async-signal-safe.
#pragma once

#include <string_view>

#include "cache/fill/cache_parts.h"
#include "cache/region/writers.h"

namespace cube::cache {

class Changes {
 public:
  explicit Changes(CacheParts& parts) : parts_(parts) {}

  // The file was changed, by this path (absolute) and of this identity (if known).
  void content_changed(std::string_view key, const FileStat* stat);
  // A name was made in this directory, or taken away.
  void entries_changed(const FileStat& directory);
  // All below a directory that was renamed, or reached by a link that was.
  void tree_changed(std::string_view directory);
  // From the opening for writing to the last close: nobody on the node caches the file.
  void writing_begins(std::string_view key, const FileStat& stat);
  void writing_ends(const FileStat& stat);
  // Others have the open file too (a child), or need none to write (a mapping): no close of ours
  // ends the writing.
  void writing_is_shared(const FileStat& stat, Sharing how);
  // A child of ours has opened it for writing.
  void child_writes(std::string_view key, const FileStat& stat);

  // Has a file of this device ever been cached? Says yes rather too often.
  bool knows_device(std::uint64_t device) const { return parts_.ram.knows_device(device); }
  // Nothing is cached or on its way, so no change that has been made matters. One that is yet to be
  // made may.
  bool is_empty() const {
    return parts_.region.header().has_fetched.load(std::memory_order_seq_cst) == 0;
  }

 private:
  CacheParts& parts_;
};

}  // namespace cube::cache
