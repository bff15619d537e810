// The job that currently uses a cache. A command that works for this job adopts the job's settings.
// Thread safety: pure functions.
#pragma once

#include <map>
#include <string>

#include "cache/base/process/process_id.h"
#include "cache/region/region.h"

namespace cube::cli {

struct RunningJob {
  std::uint32_t processes = 0;  // attached processes of all jobs
  base::ProcessId leader;       // the living first process of the oldest job; pid 0: none
  // The variables of the job's first process that a gateway may get. Empty if the environment
  // cannot be read.
  std::map<std::string, std::string> environment;

  // The job's first process may be the job's only process, for example between two epochs.
  bool is_there() const { return processes != 0 || leader.pid != 0; }
};

RunningJob find_running_job(const cache::Region& region);

}  // namespace cube::cli
