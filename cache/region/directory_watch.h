// Detects changes of a directory's entries while the directory is being read. Only changes that
// processes of the node make through the shim are detected. Each change of an entry increments the
// epoch of the directory's WriterStripe. Each change that affects everything below a directory
// increments RegionHeader::tree_changes. Thread safety: an object belongs to one thread; the
// counters that it reads may change at any time.
#pragma once

#include "cache/region/writers.h"

namespace cube::cache {

class DirectoryWatch {
 public:
  // Construct the object before the directory's path is resolved.
  explicit DirectoryWatch(Region& region) : region_(&region) {
    for (auto* const has_begun : {&region.header().has_fetched, &region.header().has_metadata}) {
      if (has_begun->load(std::memory_order_acquire) == 0)
        has_begun->store(1, std::memory_order_seq_cst);
    }
    trees_ = region.header().tree_changes.load(std::memory_order_seq_cst);
  }

  // Call it before the entries are read.
  void watch(const FileStat& directory) {
    stripe_ = &writer_stripe_of(*region_, directory);
    epoch_ = stripe_->epoch.load(std::memory_order_seq_cst);
  }
  // Call it after the record of the directory has become visible to other processes. Either this
  // function sees a change, or the process that makes the change sees the record and marks it.
  bool is_unchanged() const {
    return stripe_ != nullptr && stripe_->epoch.load(std::memory_order_seq_cst) == epoch_ &&
           region_->header().tree_changes.load(std::memory_order_seq_cst) == trees_;
  }

 private:
  Region* region_;
  const WriterStripe* stripe_ = nullptr;
  std::uint64_t trees_ = 0;
  std::uint32_t epoch_ = 0;
};

}  // namespace cube::cache
