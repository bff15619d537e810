// The parts of a FileCache, for the ways in which a record comes into RAM. Thread safety: each
// part's own.
#pragma once

#include <algorithm>

#include "cache/base/memory/kernel_page.h"
#include "cache/fill/freshness.h"
#include "cache/fill/record_fill.h"
#include "cache/region/listings.h"
#include "cache/region/ram/ram_tier.h"
#include "cache/region/single_flight.h"
#include "cache/tier/tier.h"

namespace cube::cache {

struct CacheParts {
  CacheParts(Region& of, const base::Config& config)
      : region(of),
        ram(of),
        flights(of),
        freshness(of, ram, config.consistency),
        // A page of the kernel is fetched as a whole, and by one.
        rules{config.max_file, config.block == 0 ? 0 : std::max(config.block, base::kernel_page()),
              config.consistency.kind},
        fetches_ahead(config.prefetch),
        serves_in_parts(config.mode == base::Mode::virtual_files) {}

  base::Stats& stats() const { return region.stats(); }
  // A program has opened a record that was prefetched.
  void note_opened(const Record& record, bool waited_for_prefetch);
  bool has_tiers() const { return !tiers.is_empty() || !remote.is_empty(); }
  template <typename Visit>
  void for_each_tier(Visit&& visit) const {
    for (Tier* const tier : tiers) visit(*tier);
    for (Tier* const tier : remote) visit(*tier);
  }
  // The bytes of the file with this stat, from a tier, or from a remote one as well.
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
  // Tiers over the network. Opens of programs alone ask them, after the others. They are filled
  // without TierWriter.
  Tiers remote;
  Freshness freshness;
  FillRules rules;
  bool fetches_ahead;
  bool serves_in_parts;  // in mode real the program gets a file with all its bytes
};

}  // namespace cube::cache
