#include "shim/cli/top/top_sample.h"

#include <algorithm>
#include <cerrno>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/region/lanes.h"
#include "cache/region/large/chunks.h"
#include "cache/region/life/process_slots.h"
#include "shim/cli/bus_guard.h"
#include "shim/cli/cache_names.h"

namespace cube::cli {
namespace {

std::vector<JobSample> sample_processes(cache::Region& region, std::uint32_t job) {
  std::vector<JobSample> processes;
  for (std::uint32_t i = 0; i < cache::slots_reached(region); ++i) {
    const cache::ProcessSlot& slot = region.process_slot(i);
    if (slot.used.load(std::memory_order_acquire) == 0 || slot.job != job) continue;
    if (base::liveness_of(slot.process) == base::Liveness::dead) continue;
    JobSample process{slot.process, true, {}, {}};
    cache::add_stats_of(region, i, process.totals.totals);
    processes.push_back(std::move(process));
  }
  return processes;
}

std::vector<JobSample> sample_jobs(cache::Region& region) {
  std::vector<JobSample> jobs;
  for (std::uint32_t i = 0; i < region.layout().job_rows; ++i) {
    const auto& row = region.job_row(i);
    if (row.leader.pid == 0) continue;
    jobs.push_back({row.leader, base::liveness_of(row.leader) != base::Liveness::dead,
                    cache::collect(region, i), sample_processes(region, i)});
  }
  return jobs;
}

std::vector<JobRise> all_rises(const std::vector<JobSample>& now,
                               const std::vector<JobSample>& before, double seconds);

JobRise rise_of(const JobSample& now, const JobSample& before, double seconds) {
  return {.pid = now.leader.pid,
          .is_over = !now.is_alive,
          .seconds = seconds,
          .rise = now.totals.since(before.totals),
          .totals = now.totals,
          .processes = all_rises(now.processes, before.processes, seconds)};
}

// Returns the rise of the counters, for living jobs and for jobs that ended between the samples.
std::vector<JobRise> all_rises(const std::vector<JobSample>& now,
                               const std::vector<JobSample>& before, double seconds) {
  std::vector<JobRise> all;
  for (const auto& job : now) {
    const auto known = std::find_if(before.begin(), before.end(),
                                    [&](const auto& b) { return b.leader == job.leader; });
    if (!job.is_alive && (known == before.end() || !known->is_alive)) continue;
    all.push_back(rise_of(job, known == before.end() ? JobSample{} : *known, seconds));
  }
  return all;
}

GatewayRise rise_of_gateway(cache::Region& region, cache::GatewayFigures& before, double seconds) {
  GatewayRise look{.seconds = seconds, .rise = {}};
  const cache::GatewayFigures now = cache::figures_of_gateways(region, look.gateways);
  look.rise = now;
  // When a gateway ends, its figures are lost, so the sums may fall.
  if (now.answers >= before.answers && now.bytes >= before.bytes) {
    look.rise.answers -= before.answers;
    look.rise.retries -= std::min(before.retries, now.retries);
    look.rise.bytes -= before.bytes;
    look.rise.first_byte_ns -= std::min(before.first_byte_ns, now.first_byte_ns);
  }
  before = now;
  return look;
}

}  // namespace

void WatchedCaches::find_new(std::vector<std::string>& troubles) {
  for (const auto& name :
       only_.empty() ? names_of_caches(directory_) : std::vector<std::string>{only_}) {
    if (std::any_of(watched_.begin(), watched_.end(),
                    [&](const auto& w) { return w.name == name; }))
      continue;
    cache::RegionOptions options;
    options.directory = directory_;
    options.name = name;
    std::string why;
    const BusGuard guard;
    const auto region = cache::Region::look(options, why);
    if (region) {
      watched_.push_back({name, std::unique_ptr<cache::Region>(*region), sample_jobs(**region),
                          base::monotonic_ns()});
      rise_of_gateway(**region, watched_.back().gateway, 1);
    } else if (!why.empty() || region.error().value != ENOENT) {
      troubles.push_back(why.empty() ? base::text_of_error(region.error().value) : why);
    }
  }
}

std::vector<CacheLook> WatchedCaches::look(std::vector<std::string>& troubles) {
  std::vector<CacheLook> looks;
  std::erase_if(watched_, [](const auto& w) { return w.region == nullptr; });
  find_new(troubles);
  for (auto& watched : watched_) {
    cache::Region& region = *watched.region;
    const BusGuard guard;
    // This check precedes the reading of the counters. A process stores its last counts before its
    // name is removed, so no count is missed.
    const bool is_gone = !region.is_named();
    auto now = sample_jobs(region);
    if (is_gone) {
      for (auto& job : now) job.is_alive = false;
    }
    const std::uint64_t ns = base::monotonic_ns();
    const double seconds = std::max(static_cast<double>(ns - watched.ns) / 1e9, 1e-3);
    const auto& header = region.header();
    looks.push_back(
        {.name = watched.name,
         .path = region.path(),
         .used = header.used_bytes.load(),
         .capacity = std::uint64_t{region.layout().segment_bytes} * region.layout().segment_count,
         .files = header.records.load(),
         .large = cache::figures_of_chunks(region).bytes,
         .processes = is_gone ? 0 : region.count_processes(),
         .tiers = {},
         .is_gone = is_gone,
         .servers = servers_of(region),
         .gateway = rise_of_gateway(region, watched.gateway, seconds),
         .jobs = all_rises(now, watched.before, seconds)});
    if (!looks.back().jobs.empty())
      std::copy_n(looks.back().jobs.front().totals.tiers, base::k_tiers, looks.back().tiers);
    if (guard.has_missed()) {
      troubles.push_back(region.path() + " was cut short while it was read");
      looks.pop_back();
    }
    watched.before = std::move(now);
    watched.ns = ns;
    if (is_gone || guard.has_missed()) watched.region.reset();
  }
  return looks;
}

}  // namespace cube::cli
