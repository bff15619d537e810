// Predicts an epoch of an observed run under other settings. The model places the files in the
// order of their first opens, in a region with the real layout for its size and with real records.
// As in the cache, a full tier keeps its files. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "cache/base/settings/config.h"
#include "shim/cli/plan/observed.h"

namespace cube::cli {

struct Wish {
  std::uint64_t ram = 0, disk = 0;  // bytes; 0: no disk
  unsigned nodes = 1;  // each node has this memory and reads another part in each epoch
  bool has_pack = false;
};

struct Epoch {
  double hit_ratio = 0;  // hits per open; a file above CUBESHIM_MAX_FILE counts by its bytes
  // Empty if a necessary latency was not measured.
  std::optional<double> seconds;
  // True if hits were not measured, so that `seconds` lacks their time.
  bool is_at_least = false;
};

struct Forecast {
  Epoch first;  // an epoch that begins with nothing cached
  Epoch later;  // an epoch that begins with the tiers as full as they can be
};

// Uses CUBESHIM_MAX_FILE, CUBESHIM_BLOCK, CUBESHIM_RING and CUBESHIM_METADATA of `config`.
Forecast forecast(const Observed& observed, const Wish& wish, const base::Config& config);

// Returns the smallest memory that holds all files, or 0 if no size holds them.
std::uint64_t ram_for_all(const Observed& observed, const base::Config& config);
// Returns the room that all files need on a disk.
std::uint64_t disk_for_all(const Observed& observed);

}  // namespace cube::cli
