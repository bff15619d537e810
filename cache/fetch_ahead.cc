#include "cache/fetch_ahead.h"

#include <algorithm>

#include "cache/region/life/process_slots.h"
#include "cache/region/segments.h"

namespace cube::cache {

void FetchAhead::begin_lead() {
  listings().begin_lead();
  // Frees what a former leader that died has left.
  parts_.region.reap();
}

Demand FetchAhead::demand() const {
  Demand demand;
  for (std::uint32_t i = 0; i < slots_reached(parts_.region); ++i) {
    const ProcessSlot& slot = parts_.region.process_slot(i);
    if (slot.used.load(std::memory_order_relaxed) == 0) continue;
    demand.waiting += slot.demand_waits.load(std::memory_order_relaxed);
    demand.fetches += slot.demand_fetches.load(std::memory_order_relaxed);
    demand.ns += slot.demand_ns.load(std::memory_order_relaxed);
  }
  return demand;
}

void FetchAhead::demand_of_jobs(std::vector<JobDemand>& jobs) const {
  constexpr auto k_early = static_cast<std::size_t>(base::Counter::prefetch_early);
  constexpr auto k_late = static_cast<std::size_t>(base::Counter::prefetch_late);
  jobs.clear();
  for (std::uint32_t i = 0; i < slots_reached(parts_.region); ++i) {
    const ProcessSlot& slot = parts_.region.process_slot(i);
    if (slot.used.load(std::memory_order_relaxed) == 0) continue;
    auto row = std::ranges::find(jobs, slot.job, &JobDemand::job);
    if (row == jobs.end()) row = jobs.insert(row, {.job = slot.job});
    row->fetches += slot.demand_fetches.load(std::memory_order_relaxed);
    row->ahead += slot.stats.counters[k_early].load(std::memory_order_relaxed);
    row->ahead += slot.stats.counters[k_late].load(std::memory_order_relaxed);
  }
}

bool FetchAhead::prepare_room(std::uint32_t segments) {
  if (parts_.ram.is_full()) return false;
  const auto made = prepare_segment(parts_.region, segments);
  return made && *made;
}

void FetchAhead::make_ring(const base::RamSize& size) {
  const RegionLayout& layout = parts_.region.layout();
  parts_.ram.ring().make(size.is_percent ? layout.file_bytes * size.value / 100 : size.value);
}

}  // namespace cube::cache
