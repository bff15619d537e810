// Finds the blocks of large files that can be shared with other nodes: blocks that are whole in the
// region's chunks (chunks.h), and that did not come from the cluster. Until its chunk is replaced,
// each block is found only once. The chunk is pinned while a block is offered, so that the bytes do
// not change. The object belongs to the only process of the node that shares the node's data
// (cluster_offers.h). Invariant: the bytes belong to the version of the file that `stat`
// identifies. Thread safety: one thread. All other threads may continue.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cache/region/large/chunks.h"
#include "cache/region/large/large_paths.h"
#include "cache/tier/block_record.h"

namespace cube::cache {

class ClusterBlocks {
 public:
  // `block` is the size of a block in bytes: a power of two, at most the size of a chunk. 0: there
  // are no blocks.
  ClusterBlocks(Region& region, std::uint64_t block)
      : chunks_(region), names_(region), block_(block) {}

  // Starts over. next() then finds all blocks again.
  void begin();
  // Advances to the next block. Returns false if there is no further block now, or if this call has
  // visited enough places. In the second case, the next call continues there.
  bool next();
  // The block that next() or find() has found; valid until end().
  struct Found {
    std::string_view name;  // BlockName::text
    std::string_view path;  // of the file
    FileStat stat;          // of the file
    std::span<const std::byte> bytes;
    std::uint64_t fetched_ns = 0;  // a wall-clock time at which the bytes were already present
    PageRun pages;
  };
  const Found& found() const { return found_; }
  // Finds this particular block if it is whole and was not shared yet. `at` is the offset of its
  // first byte. Call this only on an object on which begin() is never called.
  bool find(const FileKey& file, std::uint64_t at);
  // Call it when the found block was offered or will not be offered. If `is_put_off`, the block
  // will be found again later. Does nothing if no block was found.
  void end(bool is_put_off = false);
  void leave();
  // Call it in a forked child. Forgets the pin, which belongs to the parent.
  void forget();

 private:
  bool next_chunk();
  // Sets found_ to the block at offset at_, and advances past the block. Returns false if the block
  // must not be offered.
  bool show();
  bool take(std::uint32_t place);

  Chunks chunks_;
  LargePaths names_;
  std::uint64_t block_;
  Chunks::Claim claim_;  // the pin on the chunk whose blocks are being walked
  LargePaths::Entry name_;
  std::uint64_t at_ = 0, end_ = 0;   // offsets in the file: of the next block, and of the end of
                                     // the chunk
  std::vector<std::uint32_t> seen_;  // for each place, Chunks::wholes(place) at the last walk over
                                     // its blocks
  std::uint64_t seen_wholes_ = 0;    // Chunks::wholes() when the walk over the places began
  std::uint32_t place_ = 0;  // the next place to visit; the number of places if the walk has ended
  std::optional<BlockName> block_name_;
  Found found_;
  bool has_found_ = false;
  std::uint64_t again_ns_ = 0;  // base::coarse_monotonic_ns: when to find blocks again that were
                                // put off; 0: there are none
};

}  // namespace cube::cache
