// The segments for records of metadata. Unlike resident segments, these segments are reclaimed,
// because directories change and each change leaves a dead listing. At any time, all processes of
// the node fill the same segment, like the shared segment of the ring (ring.h). A segment that
// holds metadata holds nothing else until its memory is given back. Invariants: a pinned segment
// keeps its bytes. There are at most as many metadata segments as the caller allows, plus one for
// each process that leases a segment at the same instant. Thread-safe, also across processes; but
// only one thread of a process at a time may call next_filling.
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
  // Whether the segment is still open to all processes. The answer stays valid while the caller has
  // a pin on the segment.
  bool is_open(const Filling& filling) const;
  // Replaces `full` by another segment, unless another process has already replaced it. `may_drop`
  // decides whether the contents of a segment may be dropped to make room. Fails if no further
  // segment can be leased and no contents may be dropped. ENOMEM: there is no segment with metadata
  // yet. ENOSPC: there are such segments.
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
