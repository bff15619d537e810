// Detects changes of a file, through any of its paths, while the file is being copied. The changes
// that processes of the node make through the shim are detected. A writer registers in the file's
// stripe, and increments the epoch of the stripe. A change of a path increments name_changes.
// Thread safety: an object belongs to one thread.
#pragma once

#include "cache/region/writers.h"

namespace cube::cache {

class ChangeWatch {
 public:
  // Construct it before the path is resolved. A change of the path that happens later is then
  // detected.
  explicit ChangeWatch(Region& region) : region_(&region) {
    auto& has_fetched = region.header().has_fetched;
    if (has_fetched.load(std::memory_order_acquire) == 0)
      has_fetched.store(1, std::memory_order_seq_cst);
    names_ = region.header().name_changes.load(std::memory_order_seq_cst);
    trees_ = region.header().tree_changes.load(std::memory_order_seq_cst);
    files_ = region.header().file_changes.load(std::memory_order_seq_cst);
  }

  // Called before the bytes are read. `fd`: the file, open for reading; -1: there is no fd. False:
  // a process may have the file open for writing.
  bool watch(const FileStat& stat, int fd = -1) {
    stripe_ = &writer_stripe_of(*region_, stat);
    epoch_ = stripe_->epoch.load(std::memory_order_seq_cst);
    std::uint64_t removals = 0;
    const bool may_be = may_be_written(*region_, stat, fd, &removals);
    // may_be_written() increments name_changes for each writer that it removes, so that all other
    // fetches in progress check their paths again. This fetch does not count its own removals as
    // changes.
    names_ += removals;
    // A writer that ended between the stat and this check is no longer registered.
    is_stat_in_doubt_ =
        removals != 0 || region_->header().file_changes.load(std::memory_order_seq_cst) != files_;
    return !may_be;
  }
  // Whether the stat may predate the last write. True if writers of the file have just ended, or if
  // any file of the node was changed since construction.
  bool is_stat_in_doubt() const { return is_stat_in_doubt_; }
  // Call it after the record was entered in the index. If a change happens at the same time, either
  // this load sees the change, or the process that makes the change sees the record and marks it.
  bool is_unchanged() const { return is_content_unchanged() && are_paths_unchanged(); }
  // Whether no process has changed this file, and none has changed a directory, a link, or a file
  // that it could not identify. The path of this file may have changed.
  bool is_content_unchanged() const {
    return stripe_->epoch.load(std::memory_order_seq_cst) == epoch_ &&
           region_->header().tree_changes.load(std::memory_order_seq_cst) == trees_;
  }
  // Whether no process has changed any path of the node.
  bool are_paths_unchanged() const {
    return region_->header().name_changes.load(std::memory_order_seq_cst) == names_;
  }
  // From now on, are_paths_unchanged() is about later changes only.
  void renew_paths() { names_ = region_->header().name_changes.load(std::memory_order_seq_cst); }

 private:
  Region* region_;
  WriterStripe* stripe_ = nullptr;
  std::uint64_t names_ = 0, trees_ = 0, files_ = 0;
  std::uint32_t epoch_ = 0;
  bool is_stat_in_doubt_ = false;
};

}  // namespace cube::cache
