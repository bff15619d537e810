#include "shim/cli/warmup/running_job.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "cache/base/sys.h"
#include "cache/bucket/gateway_start.h"
#include "cache/region/life/process_slots.h"

namespace cube::cli {
namespace {

std::map<std::string, std::string> environment_of(std::uint32_t pid) {
  std::map<std::string, std::string> result;
  std::vector<char> text(1 << 20);
  const long n = base::sys::read_small_file(fmt::format("/proc/{}/environ", pid).c_str(),
                                            text.data(), text.size());
  std::string_view rest(text.data(), base::sys::failed(n) ? 0 : static_cast<std::size_t>(n));
  while (!rest.empty()) {
    const std::string_view row = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(rest.size(), row.size() + 1));
    const std::size_t equals = row.find('=');
    if (cache::gateway_start::is_passed_on(std::string(row).c_str()) &&
        equals != std::string_view::npos)
      result[std::string(row.substr(0, equals))] = row.substr(equals + 1);
  }
  return result;
}

}  // namespace

RunningJob find_running_job(const cache::Region& region) {
  RunningJob job;
  job.processes = region.count_processes();
  std::uint64_t oldest = UINT64_MAX;
  std::uint32_t job_row = 0;
  for (std::uint32_t i = 0; i < region.layout().job_rows; ++i) {
    const auto& row = region.job_row(i);
    const bool is_over = row.leader.pid == 0 || row.reported.load() != 0;
    if (is_over || row.started_ns >= oldest ||
        base::liveness_of(row.leader) != base::Liveness::alive)
      continue;
    oldest = row.started_ns;
    job.leader = row.leader;
    job_row = i;
  }
  // If the job's first process is `cubeshim run`, settings that were given as options are only in
  // the environment of its program. An ending process has no environment, and a process that sets
  // its title may have overwritten its environment.
  for (std::uint32_t i = cache::slots_reached(region); job.leader.pid != 0 && i-- > 0;) {
    const auto& slot = region.process_slot(i);
    if (slot.used.load() == 0 || slot.job != job_row ||
        base::liveness_of(slot.process) != base::Liveness::alive)
      continue;
    job.environment = environment_of(slot.process.pid);
    if (!job.environment.empty()) return job;
  }
  if (job.leader.pid != 0) job.environment = environment_of(job.leader.pid);
  return job;
}

}  // namespace cube::cli
