#include "cache/fetch_ahead.h"

#include <algorithm>

#include "cache/region/life/process_slots.h"
#include "cache/region/segments.h"

namespace cube::cache {

void FetchAhead::begin_lead() {
  listings().begin_lead();
  // Frees the resources of a previous leader that died.
  parts_.region.reap();
}

std::vector<Demand> FetchAhead::demand_of_jobs() const {
  constexpr auto k_early = static_cast<std::size_t>(base::Counter::prefetch_early);
  constexpr auto k_late = static_cast<std::size_t>(base::Counter::prefetch_late);
  const auto now = [](const auto& counter) { return counter.load(std::memory_order_relaxed); };
  std::vector<Demand> jobs;
  for (std::uint32_t i = 0; i < slots_reached(parts_.region); ++i) {
    const ProcessSlot& slot = parts_.region.process_slot(i);
    if (now(slot.used) == 0) continue;
    auto row = std::ranges::find(jobs, slot.job, &Demand::job);
    if (row == jobs.end()) row = jobs.insert(row, {.job = slot.job});
    const auto& counters = slot.stats.counters;
    *row += {.waiting = now(slot.demand_waits),
             .fetches = now(slot.demand_fetches),
             .ns = now(slot.demand_ns),
             .ahead = now(counters[k_early]) + now(counters[k_late])};
  }
  return jobs;
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
