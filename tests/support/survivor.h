// Checks, in a living process, the conditions that must hold on a node after a process was killed.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "cache/base/clock.h"
#include "cache/region/lanes.h"
#include "cache/region/life/process_reaper.h"
#include "cache/region/life/process_slots.h"
#include "cache/region/life/robust_lock.h"
#include "cache/region/segments.h"
#include "cache/region/single_flight.h"
#include "tests/support/test_region.h"

namespace cube::tests {

struct KillCounts {
  int kills = 0, reads = 0, records_found = 0, wrong_bytes = 0, hangs = 0, leaked_pins = 0,
      leaked_leases = 0;
  bool is_clean() const {
    return wrong_bytes == 0 && hangs == 0 && leaked_pins == 0 && leaked_leases == 0;
  }
  void print(const char* what) const {
    std::printf(
        "%s: kills %d, reads %d, records found %d, wrong bytes %d, hangs %d, leaked pins %d, "
        "leaked leases %d\n",
        what, kills, reads, records_found, wrong_bytes, hangs, leaked_pins, leaked_leases);
  }
};

class Survivor {
 public:
  explicit Survivor(cache::Region& region) : region_(region), tier_(region) {}

  // The path must have either no record or a complete and correct record.
  void check_record(const std::string& path, std::string_view expected, KillCounts& counts) {
    ++counts.reads;
    const cache::Pin pin = find(tier_, path);
    if (!pin) return;
    ++counts.records_found;
    if (!is_sound(region_, *pin) || pin->path() != path || bytes_of(*pin) != expected)
      ++counts.wrong_bytes;
  }
  // Locks must be free, and pins and leases of dead processes must be gone.
  void check_tables(KillCounts& counts) {
    const std::uint64_t began = base::monotonic_ns();
    {
      const cache::RobustLock lock(&region_.header().lifecycle);
      if (!lock) ++counts.hangs;
      cache::reap_dead_processes(region_, region_.own_slot());
    }
    if (base::monotonic_ns() - began > 60'000'000'000) ++counts.hangs;
    for (std::uint32_t p = 0; p < region_.layout().process_slots; ++p) {
      if (region_.process_slot(p).used.load() != 0) continue;
      counts.leaked_pins += cache::pins_of(region_, p) != 0 ? 1 : 0;
    }
    for (std::uint32_t s = 0; s < region_.layout().segment_count; ++s) {
      const auto word = cache::SegmentWord::of_word(region_.segment_row(s).word.load());
      const bool owned = word.state == cache::SegmentState::open && word.owner != cache::k_no_owner;
      if (owned && (word.owner >= region_.layout().process_slots ||
                    region_.process_slot(word.owner).used.load() == 0))
        ++counts.leaked_leases;
    }
  }
  // The flight for this path must be free.
  void check_turn(const std::string& path, KillCounts& counts) {
    cache::SingleFlight flights(region_);
    cache::SingleFlight::Ticket ticket;
    if (flights.begin(base::hash_path(path), ticket) == cache::SingleFlight::Outcome::too_long)
      ++counts.hangs;
  }
  cache::RamTier& tier() { return tier_; }

 private:
  cache::Region& region_;
  cache::RamTier tier_;
};

}  // namespace cube::tests
