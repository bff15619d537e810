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
  // Call it before bytes_changed() if the path may now lead to another file. Drops the records of
  // files that no longer have this path. The new file can have the inode of a removed one, and a
  // write to the new file must not count as a write to the removed file. `now`: the stat of the
  // path; null: the path does not exist.
  void doubt_identity(std::string_view key, const FileStat* now);
  // The name of this file now refers to another file, or to none. `stat`: the file that had the
  // name; null: not known. `is_moved`: that file still has another name.
  void name_changed(std::string_view key, const FileStat* stat, bool is_moved) {
    changed(key, stat, is_moved ? Record::k_changed | Record::k_removed : Record::k_gone);
  }
  // An entry of this directory was created or removed.
  void entries_changed(const FileStat& directory);
  // The path of this record no longer leads to the record's file, for example because another node
  // has removed or replaced the file. Also drops other records of the inode, unless the file may
  // still exist under another name. The caller must have a pin on the record. `now`: the stat of
  // the path; null: not known, or no file has the path.
  void name_lost(const Record& record, const FileStat* now = nullptr);
  // This file was created after `before_ns` (base::boot_ns). Older records of its inode are records
  // of a file that is gone.
  void inode_reused(const FileStat& stat, std::uint64_t before_ns) {
    changed({}, &stat, Record::k_gone, nullptr, before_ns);
  }
  // Everything below this path may have changed: a directory, or a link to one, was renamed.
  void tree_changed(std::string_view directory);
  // Some file or directory has changed, and no fd or memory was left to find out which.
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
  // Whether a file was ever cached under a path that contains a link. False is certain.
  bool knows_paths_with_links() const {
    return parts_.region.header().has_link_paths.load(std::memory_order_seq_cst) != 0;
  }
  // True if no process has begun a fetch in this region yet. Changes made so far then do not
  // matter, but a later change may.
  bool is_empty() const {
    return parts_.region.header().has_fetched.load(std::memory_order_seq_cst) == 0;
  }

 private:
  // `now`: the stat of the path; the path's records of this version are still right. `before_ns`:
  // the time of the change (base::boot_ns), if it was not made just now.
  void changed(std::string_view key, const FileStat* stat, std::uint32_t how,
               const FileStat* now = nullptr, std::uint64_t before_ns = UINT64_MAX);

  CacheParts& parts_;
};

}  // namespace cube::cache
