// Detects changes of a file, by any of its paths, while it is being copied. It sees changes that
// any process of the node makes through the shim: a writer registers in the file's stripe and
// increments its epoch, and a change of a path increments name_changes. Thread safety: an object
// belongs to one thread; the counters it reads may change at any time.
#pragma once

#include "cache/region/writers.h"

namespace cube::cache {

class ChangeWatch {
 public:
  // Constructed before the path is resolved: a path that changes after this may lead to a different
  // file from the one that is found.
  explicit ChangeWatch(Region& region) : region_(&region) {
    auto& has_fetched = region.header().has_fetched;
    if (has_fetched.load(std::memory_order_acquire) == 0)
      has_fetched.store(1, std::memory_order_seq_cst);
    names_ = region.header().name_changes.load(std::memory_order_seq_cst);
    files_ = region.header().file_changes.load(std::memory_order_seq_cst);
  }

  // Called before the bytes are read. `fd`: the file, open for reading, or -1. False: a process may
  // have the file open for writing.
  bool watch(const FileStat& stat, int fd = -1) {
    stripe_ = &writer_stripe_of(*region_, stat);
    epoch_ = stripe_->epoch.load(std::memory_order_seq_cst);
    std::uint64_t removals = 0;
    const bool may_be = may_be_written(*region_, stat, fd, &removals);
    // name_changes has grown by the removals, too, so that every other fetch of the file in
    // progress is dropped.
    names_ += removals;
    // A writer that ended between the stat and this check is no longer in any table.
    is_stat_in_doubt_ =
        removals != 0 || region_->header().file_changes.load(std::memory_order_seq_cst) != files_;
    return !may_be;
  }
  // Whether the stat may predate the last write: writers of the file have ended just now, or some
  // file of the node was changed since construction.
  bool is_stat_in_doubt() const { return is_stat_in_doubt_; }
  // Called once the record is in the index. Either this load sees a change, or the process that
  // makes the change sees the record and marks it.
  bool is_unchanged() const {
    return stripe_->epoch.load(std::memory_order_seq_cst) == epoch_ &&
           region_->header().name_changes.load(std::memory_order_seq_cst) == names_;
  }

 private:
  Region* region_;
  WriterStripe* stripe_ = nullptr;
  std::uint64_t names_ = 0, files_ = 0;
  std::uint32_t epoch_ = 0;
  bool is_stat_in_doubt_ = false;
};

}  // namespace cube::cache
