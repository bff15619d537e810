// Offers blocks of large files to the tiers as soon as the region's chunks contain the whole block.
// A BlockWriter belongs to the only thread of the node that writes to the tiers (tier_writer.h). A
// chunk is pinned while its blocks are offered, so that it is not replaced. Invariants: only whole
// blocks are offered, and only if the row of the file's path in the region proves their version.
// Until its chunk is replaced, a block is offered at most once, and never if it came from a tier.
// Thread safety: one thread. All other threads may continue.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cache/base/memory/mapping.h"
#include "cache/region/large/chunks.h"
#include "cache/region/large/large_paths.h"
#include "cache/tier/tier.h"

namespace cube::cache {

class BlockWriter {
 public:
  // `block` is the size of a block in bytes: a power of two, at most the size of a chunk. 0: there
  // are no blocks.
  BlockWriter(Region& region, const Tiers& tiers, std::uint64_t block)
      : chunks_(region), names_(region), tiers_(tiers), block_(block) {}

  // Offers the blocks that are whole now, until may_go_on() returns false. Calls `note_step` after
  // each chunk. On failure, returns the errno that ended the pass.
  base::Result<void> pass(const std::function<bool()>& may_go_on,
                          const std::function<void()>& note_step);
  // Makes threads that wait for this writer stop waiting.
  void tell_waiting() { chunks_.tell_waiting(); }
  // Returns how many chunks have blocks to offer.
  std::uint64_t left() const;

 private:
  base::Result<void> offer(const Chunks::Offer& from);
  base::Result<void> flush();
  std::uint32_t places() const;

  Chunks chunks_;
  LargePaths names_;
  LargePaths::Entry name_;
  const Tiers& tiers_;
  std::uint64_t block_;
  base::Mapping buffer_;
  std::vector<std::uint64_t> offsets_;  // the offsets of the records in the buffer
  std::uint64_t fill_ = 0;
  std::vector<PageRun> taken_;  // the blocks of the current chunk that are in the buffer
};

}  // namespace cube::cache
