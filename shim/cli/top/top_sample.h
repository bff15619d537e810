// The figures of `cubeshim top`: the caches of a user, and the rise of each job's counters between
// two samples. If BusGuard is installed, a region whose file is truncated during the sample is
// skipped. Thread safety: one thread.
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
  bool is_over = false;  // the job has ended since the last sample
  double seconds = 1;
  cache::JobTotals rise, totals;   // `rise` between the samples; `totals` since the job began
  std::vector<JobRise> processes;  // the job's living processes in this cache; empty for a process
};

struct GatewayRise {
  std::uint32_t gateways = 0;  // the number of living gateways
  double seconds = 1;
  cache::GatewayFigures rise;  // between the samples; requests in flight are current
};

struct CacheLook {
  std::string name, path;
  std::uint64_t used = 0, capacity = 0, files = 0;
  std::uint64_t large = 0;  // the part of `used` that blocks of large files occupy
  std::uint32_t processes = 0;
  base::TierStatus tiers[base::k_tiers];
  bool is_gone = false;             // the last process has ended; these are the last figures
  std::vector<SeenServer> servers;  // the servers of the cache's cluster
  GatewayRise gateway;              // the gateways for the cache's buckets
  std::vector<JobRise> jobs;
};

struct JobSample {
  base::ProcessId leader;
  bool is_alive = false;
  cache::JobTotals totals;
  std::vector<JobSample> processes;
};

// Samples the caches of a user. A region stays mapped after its file is removed, so that the last
// figures of a job are not lost.
class WatchedCaches {
 public:
  // Watches the cache named `only`, or all caches of this user in the directory if `only` is empty.
  WatchedCaches(std::string directory, std::string only)
      : directory_(std::move(directory)), only_(std::move(only)) {}
  // Returns the figures since the last call. The first call only shows which jobs exist. Adds a
  // line to `troubles` for each cache that cannot be read.
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
