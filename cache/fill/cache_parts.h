// The parts of a FileCache, shared by the classes that add records to RAM. Thread safety: as each
// part declares.
#pragma once

#include <algorithm>

#include "cache/base/memory/kernel_page.h"
#include "cache/fill/freshness.h"
#include "cache/fill/record_fill.h"
#include "cache/region/listings.h"
#include "cache/region/noted_path.h"
#include "cache/region/ram/ram_tier.h"
#include "cache/region/single_flight.h"
#include "cache/region/unserved_paths.h"
#include "cache/tier/tier.h"

namespace cube::cache {

struct CacheParts {
  CacheParts(Region& of, const base::Config& config)
      : region(of),
        ram(of),
        flights(of),
        freshness(of, ram, config.consistency),
        // A block has at least the size of a kernel page, because one process fetches the whole
        // page.
        rules{config.max_file, config.block == 0 ? 0 : std::max(config.block, base::kernel_page()),
              config.consistency.kind},
        fetches_ahead(config.prefetch),
        serves_in_parts(config.mode == base::Mode::virtual_files) {}

  base::Stats& stats() const { return region.stats(); }
  // Counts an open that is not served, and keeps its path if it is the first for this reason.
  void count_unserved(base::Counter reason, std::string_view path) const {
    stats().count(reason);
    const auto number =
        static_cast<std::size_t>(reason) - static_cast<std::size_t>(base::Counter::bypassed_size);
    note_unserved(region, region.own_job(), number, path);
  }
  // Notes that a program has opened a prefetched record.
  void note_opened(const Record& record, bool waited_for_prefetch);
  bool has_tiers() const { return !tiers.is_empty() || !remote.is_empty(); }
  template <typename Visit>
  void for_each_tier(Visit&& visit) const {
    for (Tier* const tier : tiers) visit(*tier);
    for (Tier* const tier : remote) visit(*tier);
  }
  // Reads the bytes of the file with this stat from a tier into `room`. `with_remote`: also asks
  // remote tiers.
  struct FromTier {
    const Tier* tier;
    bool is_remote;
    std::uint64_t data_hash;
  };
  std::optional<FromTier> fill_from_tier(std::string_view key, const FileStat& stat,
                                         std::byte* room, bool with_remote = false) const;

  Region& region;
  RamTier ram;
  SingleFlight flights;
  Tiers tiers;
  // Tiers over the network, which are asked after the other tiers. TierWriter does not fill these
  // tiers.
  Tiers remote;
  Freshness freshness;
  FillRules rules;
  bool fetches_ahead;
  bool serves_in_parts;  // false in mode real: the program gets a kernel file with all bytes
};

}  // namespace cube::cache
