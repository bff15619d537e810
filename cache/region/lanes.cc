#include "cache/region/lanes.h"

#include <algorithm>

namespace cube::cache {
namespace {

// Calls see(word) for each word of the process's lanes that counts pins.
template <typename See>
void for_each_pin_word(const Region& region, std::uint32_t process, See&& see) {
  for (std::uint32_t lane = 0, n = lanes_reached(region, process); lane < n; ++lane) {
    for (auto& word : region.lane_row(process, lane).pins) see(word);
  }
}

}  // namespace

[[gnu::noinline, gnu::cold]] void reach_lane(std::atomic<std::uint32_t>& reached,
                                             std::uint32_t lane) {
  std::uint32_t now = reached.load(std::memory_order_seq_cst);
  while (now <= lane && !reached.compare_exchange_weak(now, lane + 1, std::memory_order_seq_cst)) {
  }
}

std::atomic<std::uint32_t>* pin_segment_slow(const Region& region, LaneRow& row,
                                             std::uint32_t segment) {
  for (auto& word : row.pins) {
    if (pin_in(word, segment)) return &word;
  }
  std::atomic<std::uint32_t>* const all = &region.pin_row(region.own_slot())[segment];
  all->fetch_add(1, std::memory_order_seq_cst);
  return all;
}

std::uint32_t lanes_reached(const Region& region, std::uint32_t process) {
  return std::min(region.process_slot(process).lanes_reached.load(std::memory_order_seq_cst),
                  region.layout().process_lanes);
}

std::uint32_t pins_of(const Region& region, std::uint32_t process, std::uint32_t segment) {
  std::uint32_t pins = region.pin_row(process)[segment].load(std::memory_order_seq_cst);
  for_each_pin_word(region, process, [&](const auto& word) {
    const std::uint32_t now = word.load(std::memory_order_seq_cst);
    if (now >> k_pin_bits == segment) pins += now & k_pin_mask;
  });
  return pins;
}

std::uint64_t pins_of(const Region& region, std::uint32_t process) {
  std::uint64_t pins = 0;
  for (std::uint32_t segment = 0; segment < region.layout().segment_count; ++segment)
    pins += region.pin_row(process)[segment].load(std::memory_order_seq_cst);
  for_each_pin_word(region, process, [&](const auto& word) {
    pins += word.load(std::memory_order_seq_cst) & k_pin_mask;
  });
  return pins;
}

void forget_pins_of(Region& region, std::uint32_t process) {
  auto* const pins = region.pin_row(process);
  for (std::uint32_t s = 0; s < region.layout().segment_count; ++s)
    pins[s].store(0, std::memory_order_release);
  for_each_pin_word(region, process, [](auto& word) { word.store(0, std::memory_order_release); });
}

void add_stats_of(const Region& region, std::uint32_t process, base::Totals& totals) {
  totals.add(region.process_slot(process).stats);
  for (std::uint32_t lane = 0, n = lanes_reached(region, process); lane < n; ++lane) {
    const LaneRow& row = region.lane_row(process, lane);
    for (std::size_t i = 0; i < LaneRow::k_counters; ++i)
      totals.counters[static_cast<std::size_t>(LaneRow::k_counted[i])] +=
          row.counters[i].load(std::memory_order_relaxed);
  }
}

}  // namespace cube::cache
