// Changes that this process makes to files, directories and paths. Each function drops what memory
// and the tiers hold of the changed file or path, so that no tier serves the old bytes. Thread-safe
// and async-signal-safe.
#pragma once

#include <string_view>

#include "cache/fill/cache_parts.h"
#include "cache/region/writers.h"

namespace cube::cache {

class Changes {
 public:
  explicit Changes(CacheParts& parts) : parts_(parts) {}

  // The file with this absolute path and this identity (null: not known) was changed.
  void content_changed(std::string_view key, const FileStat* stat) {
    changed(key, stat, Record::k_changed);
  }
  // The bytes or the attributes of this file were changed; it keeps its name and inode.
  void bytes_changed(std::string_view key, const FileStat& stat) {
    changed(key, &stat, Record::k_changed | Record::k_in_place);
  }
  // Call it before bytes_changed() of a path that others may have replaced, with its stat, or null
  // if nothing is there. If the file of the record is no longer there, a new file may have its
  // inode, and a change of the new file in place does not apply to the record.
  void doubt_identity(std::string_view key, const FileStat* now);
  // The name of this file (null: not known) now refers to another file, or to none. `is_moved`: the
  // file still has another name.
  void name_changed(std::string_view key, const FileStat* stat, bool is_moved) {
    changed(key, stat, Record::k_changed | Record::k_removed | (is_moved ? 0 : Record::k_unlinked));
  }
  // An entry of this directory was created or removed.
  void entries_changed(const FileStat& directory);
  // Everything below this path may have changed: a directory, or a link to one, was renamed.
  void tree_changed(std::string_view directory);
  // Any file or directory may have changed: there was no fd, or no memory, to find out which one.
  void all_changed();
  // Brackets writing, from the open for writing to the last close. In between, no process of the
  // node caches the file.
  void writing_begins(std::string_view key, const FileStat& stat);
  void writing_ends(const FileStat& stat);
  // A child has inherited the open file, or a mapping can be written without it, so our last close
  // does not end the writing.
  void writing_is_shared(const FileStat& stat, Sharing how);
  // A child of this process has opened the file for writing.
  void child_writes(std::string_view key, const FileStat& stat);

  // Whether a file of this device was ever cached. May wrongly return true, but never wrongly
  // returns false.
  bool knows_device(std::uint64_t device) const { return parts_.ram.knows_device(device); }
  // True if nothing is cached or being fetched: no change made so far matters, but a later one may.
  bool is_empty() const {
    return parts_.region.header().has_fetched.load(std::memory_order_seq_cst) == 0;
  }

 private:
  void changed(std::string_view key, const FileStat* stat, std::uint32_t how);

  CacheParts& parts_;
};

}  // namespace cube::cache
