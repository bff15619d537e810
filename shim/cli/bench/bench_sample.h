// The files and directories that `cubeshim bench` measures: a walk that ends after a number of
// files or a time, and a random choice of what it has found. No file is opened, and none is stat'ed
// if the listing gives its type. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shim/cli/bench/bench_pass.h"

namespace cube::cli {

struct SampleLimits {
  std::size_t files = 0;   // to choose
  std::size_t listed = 0;  // the most files to list
  unsigned in_flight = 32;
  std::uint64_t until_ns = UINT64_MAX;
};

struct BenchSample {
  std::vector<std::string> files;  // chosen
  Pass list_one, list_many;  // opendir, readdir to the end, closedir: one at a time, many in flight
  std::uint64_t files_seen = 0;
  bool is_whole = false;  // the walk reached its end
};

BenchSample take_bench_sample(const std::string& directory, const SampleLimits& limits);

}  // namespace cube::cli
