// Changes that this process makes to files, directories and paths. Each function drops the data of
// the changed file or path from memory and from the tiers, so that neither serves the old bytes.
// Thread-safe and async-signal-safe.
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
  // Call it before bytes_changed() of a path that another process may have replaced. `now`: the
  // stat of the path; null: the path does not exist. If the path no longer leads to the file of its
  // record, a new file may have the inode, and a change in place may be a change of the new file.
  void doubt_identity(std::string_view key, const FileStat* now);
  // The name of this file now refers to another file, or to none. `stat`: the file that had the
  // name; null: not known. `is_moved`: that file still has another name.
  void name_changed(std::string_view key, const FileStat* stat, bool is_moved) {
    changed(key, stat, is_moved ? Record::k_changed | Record::k_removed : Record::k_gone);
  }
  // An entry of this directory was created or removed.
  void entries_changed(const FileStat& directory);
  // Another node has removed the name of this record, or has given it to another file. If the file
  // had other names, or if the path leads through a link, the inode may still belong to the file.
  // The caller must have a pin on the record.
  void name_lost(const Record& record);
  // A process has just made this file, so all records of the inode are of a file that is gone.
  void inode_reused(const FileStat& stat) { changed({}, &stat, Record::k_gone); }
  // Everything below this path may have changed: a directory, or a link to one, was renamed.
  void tree_changed(std::string_view directory);
  // Any file or directory may have changed, because no fd or no memory was left to find out which.
  void all_changed();
  // Marks the beginning and the end of writing, from the open for writing to the last close. In
  // between, no process of the node caches the file.
  void writing_begins(std::string_view key, const FileStat& stat);
  void writing_ends(const FileStat& stat);
  // A child has inherited the open file, or a mapping remains writable without the fd, so the last
  // close in this process does not end the writing.
  void writing_is_shared(const FileStat& stat, Sharing how);
  // A child of this process has opened the file for writing.
  void child_writes(std::string_view key, const FileStat& stat);

  // Whether a file of this device was ever cached. False is certain; true may be wrong.
  bool knows_device(std::uint64_t device) const { return parts_.ram.knows_device(device); }
  // True if nothing is cached or being fetched. Then no change that was made so far matters, but a
  // later change may.
  bool is_empty() const {
    return parts_.region.header().has_fetched.load(std::memory_order_seq_cst) == 0;
  }

 private:
  void changed(std::string_view key, const FileStat* stat, std::uint32_t how);

  CacheParts& parts_;
};

}  // namespace cube::cache
