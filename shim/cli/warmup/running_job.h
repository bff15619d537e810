// The job that uses a cache now: a command that works for it takes over what it was started with.
// Thread safety: pure functions.
#pragma once

#include <map>
#include <string>

#include "cache/base/process/process_id.h"
#include "cache/region/region.h"

namespace cube::cli {

struct RunningJob {
  std::uint32_t processes = 0;  // that are attached, of all jobs
  base::ProcessId leader;       // of the oldest job whose first process lives; pid 0: there is none
  std::map<std::string, std::string>
      environment;  // the CUBESHIM_ variables of the leader, as far as they can be read

  // Its first process may be there while no other is: between two epochs, say.
  bool is_there() const { return processes != 0 || leader.pid != 0; }
};

RunningJob find_running_job(const cache::Region& region);

}  // namespace cube::cli
