#include "prefetch/pace/foreign_demand.h"

namespace cube::prefetch {
namespace {

// The counts of a process disappear when it ends.
double grown(std::uint64_t now, std::uint64_t before) {
  return now > before ? static_cast<double>(now - before) : 0;
}

}  // namespace

bool ForeignDemand::is_there(std::span<const Job> jobs, std::uint64_t overtaken) {
  double foreign = 0;
  for (auto& [number, recent] : jobs_) recent.is_alive = false;
  for (const Job& job : jobs) {
    const bool is_new = !jobs_.contains(job.number);
    Recent& recent = jobs_[job.number];
    if (is_new) recent = {.fetches = job.fetches, .ahead = job.ahead};
    recent.sum_fetches += grown(job.fetches, recent.fetches) - k_weight * recent.sum_fetches;
    recent.sum_ahead += grown(job.ahead, recent.ahead) - k_weight * recent.sum_ahead;
    recent.fetches = job.fetches;
    recent.ahead = job.ahead;
    recent.is_alive = true;
    if (!job.is_planned && recent.sum_ahead < k_share * recent.sum_fetches)
      foreign += recent.sum_fetches;
  }
  std::erase_if(jobs_, [](const auto& row) { return !row.second.is_alive; });
  sum_overtaken_ += grown(overtaken, overtaken_) - k_weight * sum_overtaken_;
  overtaken_ = overtaken;
  return foreign > k_least && foreign > 2 * sum_overtaken_;
}

}  // namespace cube::prefetch
