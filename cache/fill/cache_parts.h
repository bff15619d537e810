// The parts of a FileCache. All classes that add records to RAM share them. Thread safety: as each
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
        // A block is at least as large as a kernel page, so that only one process fetches each
        // kernel page.
        rules{config.max_file, config.block == 0 ? 0 : std::max(config.block, base::kernel_page()),
              config.consistency.kind},
        fetches_ahead(config.prefetch),
        serves_in_parts(config.mode == base::Mode::virtual_files) {}

  base::Stats& stats() const { return region.stats(); }
  // Counts an open that is not served. If it is the first open with this reason, keeps its path for
  // the report.
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
  // Reads the file with this stat from a tier into `room`. `with_remote`: asks the remote tiers,
  // too.
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
  // Tiers over the network. Remote tiers are asked after all others, and TierWriter does not write
  // to them.
  Tiers remote;
  Freshness freshness;
  FillRules rules;
  bool fetches_ahead;
  bool serves_in_parts;  // false in mode `real`, where the program gets a kernel file with all
                         // bytes
};

}  // namespace cube::cache
