// The figures behind `cubeshim top`: the caches of a user, and for each job the rise of its
// counters between two samples. A file that is truncated during the sample is left out, provided
// that BusGuard is installed. Thread safety: one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cache/base/process/process_id.h"
#include "cache/region/mailbox/mailbox.h"
#include "cache/region/region.h"
#include "cache/report/job_totals.h"
#include "shim/cli/top/seen_servers.h"

namespace cube::cli {

struct JobRise {
  std::uint32_t pid = 0;
  bool is_over = false;  // it has ended since the last sample
  double seconds = 1;
  cache::JobTotals rise, totals;  // between the samples; since it began
  std::vector<JobRise>
      processes;  // living processes of the job that have the cache; empty for a process
};

struct GatewayRise {
  std::uint32_t gateways = 0;  // that live
  double seconds = 1;
  cache::GatewayFigures rise;  // between the samples; of the requests in flight, now
};

struct CacheLook {
  std::string name, path;
  std::uint64_t used = 0, capacity = 0, files = 0;
  std::uint64_t large = 0;  // part of `used`: blocks of large files
  std::uint32_t processes = 0;
  base::TierStatus tiers[base::k_tiers];
  bool is_gone = false;             // its last process has ended; these are its last figures
  std::vector<SeenServer> servers;  // of its cluster
  GatewayRise gateway;              // of its buckets
  std::vector<JobRise> jobs;
};

struct JobSample {
  base::ProcessId leader;
  bool is_alive = false;
  cache::JobTotals totals;
  std::vector<JobSample> processes;
};

// A region stays mapped after its file is removed, so that the last figures of a job are not lost.
class WatchedCaches {
 public:
  // `only` selects the cache of this name; if it is empty, all caches of this user in the directory
  // are shown.
  WatchedCaches(std::string directory, std::string only)
      : directory_(std::move(directory)), only_(std::move(only)) {}
  // Covers the time since the last call; the first call only shows which jobs exist. `troubles`
  // gets a line for each cache that cannot be read.
  std::vector<CacheLook> look(std::vector<std::string>& troubles);

 private:
  struct Watched {
    std::string name;
    std::unique_ptr<cache::Region> region;
    std::vector<JobSample> before;
    std::uint64_t ns = 0;
    cache::GatewayFigures gateway = {};
  };
  void find_new(std::vector<std::string>& troubles);

  const std::string directory_, only_;
  std::vector<Watched> watched_;
};

}  // namespace cube::cli
