// The tiers below RAM, in the order in which the cache asks them. The report, the region's header
// and the cache iterate over this list. Thread safety: constants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "cache/base/settings/stats.h"

namespace cube::base {

struct TierKind {
  const char* name;  // in the report
  Counter hits;
  Counter blocks;  // counts the bytes of large files that were read from the tier
};
inline constexpr TierKind k_tier_kinds[] = {
    {"disk", Counter::hits_disk, Counter::block_disk},
    {"cluster", Counter::hits_cluster, Counter::block_cluster}};
inline constexpr std::size_t k_tiers = std::size(k_tier_kinds);

// How full a tier is.
struct TierStatus {
  std::uint64_t capacity = 0;   // bytes; 0: no such tier, or not known
  std::uint64_t used = 0;       // bytes
  std::uint64_t entries = 0;    // records
  std::uint64_t unwritten = 0;  // records that the last exit had no time to write
  bool is_there = false;        // whether there is such a tier; its capacity may be unknown
};

}  // namespace cube::base
