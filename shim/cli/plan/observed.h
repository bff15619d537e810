// An observed run for `cubeshim plan`: the use of each file, read from the raw files of the
// profiler (shim/profile/raw_format.h). Thread safety: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shim/cli/profile/profile_raw.h"

namespace cube::cli {

// The use of one file, summed over all processes.
struct ObservedFile {
  std::array<std::uint64_t, shim::profile::k_file_counts> counts{};  // FileCount

  std::uint64_t at(shim::profile::FileCount which) const { return counts[which]; }
  double number(shim::profile::FileCount which) const { return static_cast<double>(counts[which]); }
  // Opens that were not shortly after another open of the file. Each of them begins an epoch for
  // the file.
  double first_opens() const {
    return number(shim::profile::k_file_opens) - number(shim::profile::k_soon_again);
  }
  double all_ns() const {
    return number(shim::profile::k_file_memory_ns) + number(shim::profile::k_file_origin_ns) +
           number(shim::profile::k_file_tier_ns);
  }
  // Opens that waited for another fetch or asked the origin.
  double slow_opens() const {
    return number(shim::profile::k_waited) + number(shim::profile::k_from_origin);
  }
  bool was_fetched_ahead() const {
    return at(shim::profile::k_from_origin) == 0 && at(shim::profile::k_from_tier) == 0;
  }
};

struct Observed {
  std::vector<ObservedFile> files;  // ordered by their first opens
  std::uint64_t bytes = 0;          // size of all files
  std::uint64_t processes = 0;
  bool has_cache = false;       // false: a run with --observe, in which nothing was served
  bool lists = false;           // the program has read directories
  double path_length = 0;       // mean
  double epochs = 1;            // how many times a file was read, on average
  double readers = 1;           // how many processes read at the same time, on average
  double seconds = 0;           // from the first open to the last call
  double profiler_seconds = 0;  // the profiler's own time in the calls of all processes
  // Nanoseconds per open, including the other calls on the opened file. Empty if not measured.
  std::optional<double> origin_ns, memory_ns, tier_ns, packed_ns;
};

// Returns false if these files are not an observed run; `why` then gives the reason in one line.
// `epochs` is 0 if unknown.
bool observe(const std::vector<RawFile>& files, double epochs, Observed& observed,
             std::string& why);

}  // namespace cube::cli
