// The result of `cubeshim bench`, as text and as JSON. Thread safety: pure functions.
#pragma once

#include <optional>
#include <string>

#include "shim/cli/bench/bench_machine.h"
#include "shim/cli/bench/bench_sample.h"

namespace cube::cli {

struct BenchResult {
  std::string directory, file_system;
  BenchSample sample;
  Pass read_one, read_again, read_many;  // one at a time; the same files again; many in flight
  Pass stat_one, stat_many;
  BenchMachine machine;
  std::uint64_t max_file = 0;

  // Returns the mean size of the files that were read.
  std::uint64_t mean_size() const;
  std::string text() const;
  std::string json() const;
};

}  // namespace cube::cli
