// Measures this machine for `cubeshim bench`: the room for a cache, and the time per file on a
// local disk and as a hit of the library. The measured files have the sizes of the mount's files.
// All files are written to one temporary directory, which is removed afterwards. Thread safety: one
// caller.
#pragma once

#include <span>
#include <string>

#include "cache/base/settings/config.h"
#include "shim/cli/bench/bench_pass.h"

namespace cube::cli {

struct BenchMachine {
  std::uint64_t ram_total = 0, ram_free = 0;  // bytes of the file system of CUBESHIM_RAM_DIR
  std::uint64_t memory = UINT64_MAX,
                group_limit = UINT64_MAX;  // the control groups' limit; UINT64_MAX: unknown or none
  std::uint64_t cache_room = 0;            // the size that CUBESHIM_RAM gives a region
  std::string disk;                        // the parent of the temporary directory
  std::string why_no_disk, why_no_hits;    // empty if it was measured successfully
  Pass cold, warm, hits;
  std::string unserved;  // expected hits that were not served, and the reasons; empty: none
};

// Makes files of these `sizes` in the directory that `config` names, and measures them.
BenchMachine measure_machine(const base::Config& config, std::span<const std::uint64_t> sizes);

// Runs in a child with the preloaded library. Reads all files below the directory several times,
// and prints the figures of the last pass.
int read_hits(const std::string& directory);

}  // namespace cube::cli
