// Has anything changed a file, by whatever name, while it was being copied? Changes made through
// the shim, by any process of the node, that is: a writer closes the file's stripe and counts its
// epoch up, a change of names counts them up. Thread safety: an object belongs to one thread; what
// it looks at may change at any time.
#pragma once

#include "cache/region/writers.h"

namespace cube::cache {

class ChangeWatch {
 public:
  // Made before the name is followed: one that changes from here on may no longer be that of what
  // is found.
  explicit ChangeWatch(Region& region) : region_(&region) {
    auto& has_fetched = region.header().has_fetched;
    if (has_fetched.load(std::memory_order_acquire) == 0)
      has_fetched.store(1, std::memory_order_seq_cst);
    names_ = region.header().name_changes.load(std::memory_order_seq_cst);
    files_ = region.header().file_changes.load(std::memory_order_seq_cst);
  }

  // Before the bytes are read. `fd`: the file, open for reading, or -1. False: somebody may have
  // the file open for writing.
  bool watch(const FileStat& stat, int fd = -1) {
    stripe_ = &writer_stripe_of(*region_, stat);
    epoch_ = stripe_->epoch.load(std::memory_order_seq_cst);
    std::uint64_t removals = 0;
    const bool may_be = may_be_written(*region_, stat, fd, &removals);
    // They count as changes of names, so that every other fetch of the file that has begun is
    // dropped.
    names_ += removals;
    // A writer that ended after the stat and before this look is in no table any more.
    is_stat_in_doubt_ =
        removals != 0 || region_->header().file_changes.load(std::memory_order_seq_cst) != files_;
    return !may_be;
  }
  // Was the file written until now, or any file of the node since this was made? Then its stat may
  // be from before the last write.
  bool is_stat_in_doubt() const { return is_stat_in_doubt_; }
  // After the record can be found by who makes a change. Either we see the change here, or they see
  // the record and mark it.
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
