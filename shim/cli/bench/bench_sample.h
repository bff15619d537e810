// The files and directories that `cubeshim bench` measures. A walk lists directories until it has
// found a number of files or a time has passed. The sample is a random choice from the files found.
// No file is opened. A file is stat'ed only if the listing does not give its type. Thread safety:
// pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shim/cli/bench/bench_pass.h"

namespace cube::cli {

struct SampleLimits {
  std::size_t files = 0;   // how many files to choose
  std::size_t listed = 0;  // how many files to list at most
  unsigned in_flight = 32;
  std::uint64_t until_ns = UINT64_MAX;
};

struct BenchSample {
  std::vector<std::string> files;  // chosen
  Pass list_one, list_many;  // opendir, readdir to the end, closedir: one at a time; many in flight
  std::uint64_t files_seen = 0;
  bool is_whole = false;  // the walk reached its end
};

BenchSample take_bench_sample(const std::string& directory, const SampleLimits& limits);

}  // namespace cube::cli
