// This machine, for `cubeshim bench`: the room for a cache, and the costs of files of the same
// sizes on a local disk and as hits of the library. All is written to one temporary directory,
// which is removed. Thread safety: one caller.
#pragma once

#include <span>
#include <string>

#include "cache/base/settings/config.h"
#include "shim/cli/bench/bench_pass.h"

namespace cube::cli {

struct BenchMachine {
  std::uint64_t ram_total = 0, ram_free = 0;  // of the file system of CUBESHIM_RAM_DIR
  std::uint64_t memory = UINT64_MAX,
                group_limit = UINT64_MAX;  // that may be used; UINT64_MAX: not known, no limit
  std::uint64_t cache_room = 0;            // bytes that CUBESHIM_RAM comes to
  std::string disk;                        // the directory of the temporary one
  std::string why_no_disk, why_no_hits;    // not measured; empty: measured
  Pass cold, warm, hits;
  std::string unserved;  // opens that were to be hits, and the reasons; empty: none
};

// `sizes` of the files to make; `config` says where.
BenchMachine measure_machine(const base::Config& config, std::span<const std::uint64_t> sizes);

// In the child that has the library preloaded: reads all files below the directory some times, and
// prints the last pass.
int read_hits(const std::string& directory);

}  // namespace cube::cli
