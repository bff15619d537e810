// The words of the region that a process writes on a hit: pins on segments, and counters. Each lane
// of the process's threads (cache/base/lane.h) has its own words. A lane has room for pins on a few
// segments. Further pins are counted in a row of the process that has a word for each segment. Each
// step is one atomic operation, so a process that dies leaves valid words, which the reaper clears
// (process_reaper.h). Thread-safe, also across processes; async-signal-safe.
#pragma once

#include <cstdint>

#include "cache/base/settings/stats.h"
#include "cache/region/region.h"

namespace cube::cache {

void reach_lane(std::atomic<std::uint32_t>& reached, std::uint32_t lane);
// Returns the row of the calling thread.
inline LaneRow& own_lane_row(const Region& region) {
  // process_lanes is a power of two, like base::k_lanes.
  const std::uint32_t lane = base::own_lane() & (region.layout().process_lanes - 1);
  // seq_cst: an evictor that does not see this lane has already marked the segment that it evicts.
  // So this process sees the mark when it pins that segment.
  if (region.own_lanes_reached().load(std::memory_order_seq_cst) <= lane) [[unlikely]]
    reach_lane(region.own_lanes_reached(), lane);
  return region.own_lanes()[lane];
}
inline void count_hit(const Region& region) {
  own_lane_row(region).counters[LaneRow::k_hits_ram].fetch_add(1, std::memory_order_relaxed);
}
// Counts calls on a served file.
inline void count_served(const Region& region, std::uint64_t bytes, std::uint64_t calls) {
  LaneRow& row = own_lane_row(region);
  row.counters[LaneRow::k_bytes_served].fetch_add(bytes, std::memory_order_relaxed);
  row.counters[LaneRow::k_calls_saved].fetch_add(calls, std::memory_order_relaxed);
}

inline constexpr std::uint32_t k_pin_bits = 14, k_pin_mask = (1U << k_pin_bits) - 1;
// Opens add pins to a word only up to this number. Pin::duplicate does not check this limit, so the
// pins of mappings (at most 4,096) and of files that wait for the cluster can exceed it.
inline constexpr std::uint32_t k_most_pins = 1U << 12;
// False: the word has no room for the pin.
inline bool pin_in(std::atomic<std::uint32_t>& word, std::uint32_t segment) {
  std::uint32_t now = word.load(std::memory_order_relaxed);
  while (true) {
    const std::uint32_t count = now & k_pin_mask;
    if (count != 0 && (now >> k_pin_bits != segment || count >= k_most_pins)) return false;
    const std::uint32_t next = count == 0 ? (segment << k_pin_bits) | 1 : now + 1;
    if (word.compare_exchange_strong(now, next, std::memory_order_seq_cst)) return true;
  }
}
std::atomic<std::uint32_t>* pin_segment_slow(const Region& region, LaneRow& row,
                                             std::uint32_t segment);
// Adds a pin of this process on the segment. seq_cst: the caller first adds the pin, then checks
// that the segment still has the same generation. To end the pin, call fetch_sub(1) with release on
// the returned word.
inline std::atomic<std::uint32_t>* pin_segment(const Region& region, std::uint32_t segment) {
  LaneRow& row = own_lane_row(region);
  return pin_in(row.pins[0], segment) ? &row.pins[0] : pin_segment_slow(region, row, segment);
}
// Counts the pins of a process on a segment. seq_cst, because an evictor marks the segment first
// and then loads the pins.
std::uint32_t pins_of(const Region& region, std::uint32_t process, std::uint32_t segment);
// Counts the pins of a process on all segments.
std::uint64_t pins_of(const Region& region, std::uint32_t process);
void forget_pins_of(Region& region, std::uint32_t process);

// Returns how many lanes have ever been used in the process's slot. The result is within bounds
// even if the region is corrupt.
std::uint32_t lanes_reached(const Region& region, std::uint32_t process);
// Adds the counters of a process, summed over all its lanes.
void add_stats_of(const Region& region, std::uint32_t process, base::Totals& totals);

}  // namespace cube::cache
