// The segments for records of metadata. Unlike resident segments they are reclaimed, because
// directories change and each change leaves a dead listing. All processes of the node fill one of
// them at a time, as with the ring's segments (ring.h). A segment that holds metadata takes nothing
// else until it gives its memory back. Invariants: a pinned segment keeps its bytes. There are at
// most as many metadata segments as the caller allows, plus one for each process that leases at the
// same instant. Thread-safe, across processes too; one thread of a process at a time calls
// next_filling.
#pragma once

#include <cstdint>
#include <functional>

#include "cache/base/result.h"
#include "cache/region/filling.h"
#include "cache/region/region.h"

namespace cube::cache {

class MetadataRoom {
 public:
  explicit MetadataRoom(Region& region) : region_(&region) {}

  Filling filling() const;
  // True if the segment is still the one to fill. The answer stays valid while the caller has a pin
  // on it.
  bool is_open(const Filling& filling) const;
  // Replaces `full` by another segment, unless another process has already done so. `may_drop`
  // decides whether the contents of a segment may be dropped for its room. ENOSPC: there are `most`
  // already, none of which may be dropped. ENOMEM: there is no such segment, and the region has no
  // free one.
  base::Result<void> next_filling(const Filling& full, std::uint32_t most,
                                  const std::function<bool(std::uint32_t segment)>& may_drop);
  std::uint32_t count() const;

 private:
  bool owns(std::uint32_t segment) const;
  bool take(std::uint32_t segment) const;
  base::Result<std::uint32_t> lease(
      const Filling& full, std::uint32_t most,
      const std::function<bool(std::uint32_t segment)>& may_drop) const;

  Region* region_;
};

}  // namespace cube::cache
