// Sends files to the servers of CUBESHIM_CLUSTER, for `cubeshim warmup --to-cluster`. If several
// nodes run this command at the same time, they share the work: the server's lease decides which
// node reads a file from the origin. A file is read, sent and freed, so this node's caches are not
// used, and little memory is needed. Invariants: Only files that programs would have shared are
// sent (cluster_record.h). If no file is sent for a lease, the lease is given back. Thread safety:
// one thread calls load_to_cluster, which works in its own threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/base/settings/config.h"
#include "shim/cli/warmup/census.h"
#include "shim/cli/warmup/named_paths.h"
#include "shim/cli/warmup/progress.h"
#include "shim/cli/warmup/skipped.h"

namespace cube::cli {

struct ClusterLoadCounts {
  std::uint64_t there = 0;      // already on the servers at the first check
  std::uint64_t by_others = 0;  // shared by other nodes after the first check
  std::uint64_t read = 0, read_bytes = 0, shared = 0, shared_bytes = 0;
};

// Returns after all files are handled, or after an interrupt. `census` may be null. If the work
// cannot begin, returns nothing and sets `why`.
std::optional<ClusterLoadCounts> load_to_cluster(const base::Config& config, NamedPaths& paths,
                                                 const Census* census, Skipped& skipped,
                                                 Progress& progress, std::string& why);

}  // namespace cube::cli
