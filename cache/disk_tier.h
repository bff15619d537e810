// The disk as the file cache sees it: bytes for a file that is open at the origin and not in RAM, if they are those of this very
// stat. It never saves the open, which alone proves that the program may read the file; it saves the reads.
// Invariants: what fill() gives is what the origin held at that inode, size, mtime and ctime.
// Thread safety: all of it. fill and the changes take no lock, and allocate by mmap alone.
#pragma once

#include <string>
#include <string_view>

#include "cache/base/config.h"
#include "cache/disk/disk_store.h"
#include "cache/ram/layout.h"

namespace cube::cache {

class DiskTier {
 public:
  // Never freed. On failure, `why` is one line for the user.
  static base::Result<DiskTier*> open(const base::Config& config, const base::ProcessId& job, std::string& why);

  // stat.size bytes to `room`; false: there are none for it.
  bool fill(std::string_view key, const FileStat& stat, std::byte* room);
  // The records in RAM are marked already. Async-signal-safe, as the next two.
  void content_changed(std::string_view key, const FileStat* stat);
  void tree_changed() { store_->distrust_all(); }
  // In a forked child: the object is then dead.
  void abandon() { store_->abandon(); }

  // How full it is, for the report.
  void tell(RegionHeader& header) const;
  DiskStore& store() { return *store_; }

 private:
  explicit DiskTier(std::unique_ptr<DiskStore> store) : store_(std::move(store)) {}
  bool fill_from(const DiskPlace& place, std::string_view key, const FileStat& stat, std::byte* room);

  std::unique_ptr<DiskStore> store_;
};

}  // namespace cube::cache
