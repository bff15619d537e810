// Brings files into the servers of CUBESHIM_CLUSTER, for `cubeshim warmup --to-cluster`. Nodes that
// do so at the same time share the work: a lease of the server decides which of them reads a file
// at the origin. A file is read, sent and forgotten: no cache of this node takes part, and little
// memory. Invariants: what is sent is what programs would have shared (cluster_record.h). A lease
// that comes to nothing is given back. Thread safety: one thread calls; the work is done by threads
// of its own.
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
  std::uint64_t there = 0;      // at the first look
  std::uint64_t by_others = 0;  // that other nodes have shared meanwhile
  std::uint64_t read = 0, read_bytes = 0, shared = 0, shared_bytes = 0;
};

// Until all are dealt with, or the command is interrupted. `census` may be null. Nothing: `why`
// says why it cannot begin.
std::optional<ClusterLoadCounts> load_to_cluster(const base::Config& config, NamedPaths& paths,
                                                 const Census* census, Skipped& skipped,
                                                 Progress& progress, std::string& why);

}  // namespace cube::cli
