// Predicts an epoch of an observed run under other settings. The model places the files in the
// order of their first opens, with the layout of a real region of that size and of real records. It
// follows the cache's policy: a full tier keeps its files. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "cache/base/settings/config.h"
#include "shim/cli/plan/observed.h"

namespace cube::cli {

struct Wish {
  std::uint64_t ram = 0, disk = 0;  // bytes; disk 0: none
  unsigned nodes = 1;  // each reads another part of the files in each epoch, and has this memory
  bool has_pack = false;
};

struct Epoch {
  double hit_ratio = 0;  // of opens; a file above CUBESHIM_MAX_FILE counts by its bytes
  // Empty if a latency that it depends on was not measured.
  std::optional<double> seconds;
  // Hits were not measured, so their time is missing in `seconds`.
  bool is_at_least = false;
};

struct Forecast {
  Epoch first;  // nothing is cached
  Epoch later;  // the tiers are as full as they can be
};

// Uses CUBESHIM_MAX_FILE, CUBESHIM_BLOCK, CUBESHIM_RING and CUBESHIM_METADATA of `config`.
Forecast forecast(const Observed& observed, const Wish& wish, const base::Config& config);

// Returns the least memory that holds all files, or 0 if no size does.
std::uint64_t ram_for_all(const Observed& observed, const base::Config& config);
// Returns the room that all files take on a disk.
std::uint64_t disk_for_all(const Observed& observed);

}  // namespace cube::cli
