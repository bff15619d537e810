// Has anything changed the entries of a directory while it was read? Changes made through the shim,
// by any process of the node, that is: each counts the epoch of the directory's stripe up, and a
// change of a tree counts RegionHeader::tree_changes. Thread safety: an object belongs to one
// thread; what it looks at may change at any time.
#pragma once

#include "cache/region/writers.h"

namespace cube::cache {

class DirectoryWatch {
 public:
  // Made before the path is followed.
  explicit DirectoryWatch(Region& region) : region_(&region) {
    for (auto* const has_begun : {&region.header().has_fetched, &region.header().has_metadata}) {
      if (has_begun->load(std::memory_order_acquire) == 0)
        has_begun->store(1, std::memory_order_seq_cst);
    }
    trees_ = region.header().tree_changes.load(std::memory_order_seq_cst);
  }

  // Before the entries are read.
  void watch(const FileStat& directory) {
    stripe_ = &writer_stripe_of(*region_, directory);
    epoch_ = stripe_->epoch.load(std::memory_order_seq_cst);
  }
  // After the record can be found by who makes a change. Either we see the change here, or they see
  // the record and mark it.
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
