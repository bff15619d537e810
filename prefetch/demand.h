// The waits of the node's programs for the origin, all processes together.
// Thread safety: reads atomics.
#pragma once

#include <cstdint>

#include "cache/ram/process_slots.h"
#include "cache/ram/region.h"

namespace cube::prefetch {

struct Demand {
  unsigned waiting = 0;               // operations now
  std::uint64_t fetches = 0, ns = 0;  // so far, of the processes that live
};

inline Demand look_at_demand(const cache::Region& region) {
  Demand demand;
  for (std::uint32_t i = 0; i < cache::slots_reached(region); ++i) {
    const cache::ProcessSlot& slot = region.process_slot(i);
    if (slot.used.load(std::memory_order_relaxed) == 0) continue;
    demand.waiting += slot.demand_waits.load(std::memory_order_relaxed);
    demand.fetches += slot.demand_fetches.load(std::memory_order_relaxed);
    demand.ns += slot.demand_ns.load(std::memory_order_relaxed);
  }
  return demand;
}

}  // namespace cube::prefetch
