// Offers blocks of large files to the tiers: those that have become whole in the region's chunks.
// Its owner is the one thread of the node that writes (tier_writer.h). A chunk is claimed
// meanwhile, so that its place stays its own. Invariants: only whole blocks are offered, of a
// version of the file that its name in the region proves; a block is offered once for each life of
// its chunk, and not at all if it came from a tier. Thread safety: one thread; everything else may
// go on meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cache/base/memory/mapping.h"
#include "cache/region/large/chunks.h"
#include "cache/region/large/large_names.h"
#include "cache/tier/tier.h"

namespace cube::cache {

class BlockWriter {
 public:
  // `block`: bytes of a block, a power of two of up to a chunk; 0: there are none.
  BlockWriter(Region& region, const Tiers& tiers, std::uint64_t block)
      : chunks_(region), names_(region), tiers_(tiers), block_(block) {}

  // What has become whole until may_go_on() says no; after each chunk `note_step`. The errno of
  // what ended it.
  base::Result<void> pass(const std::function<bool()>& may_go_on,
                          const std::function<void()>& note_step);
  // Nobody shall wait for it any more.
  void tell_waiting() { chunks_.tell_waiting(); }
  // How many chunks have something to offer.
  std::uint64_t left() const;

 private:
  base::Result<void> offer(const Chunks::Offer& from);
  base::Result<void> flush();
  std::uint32_t places() const;

  Chunks chunks_;
  LargeNames names_;
  LargeNames::Name name_;
  const Tiers& tiers_;
  std::uint64_t block_;
  base::Mapping buffer_;
  std::vector<std::uint64_t> offsets_;  // of the records in the buffer
  std::uint64_t fill_ = 0;
  std::vector<PageRun> taken_;  // the blocks of this chunk that have been put into the buffer
};

}  // namespace cube::cache
