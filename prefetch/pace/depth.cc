#include "prefetch/pace/depth.h"

#include <algorithm>
#include <utility>

namespace cube::prefetch {
namespace {

constexpr std::uint64_t k_period_ns = 20'000'000, k_longest_period_ns = 500'000'000;
constexpr unsigned k_first_depth = 16;
// The counts of a process disappear when it ends.
std::uint64_t grown(std::uint64_t now, std::uint64_t before) {
  return now > before ? now - before : 0;
}

}  // namespace

Depth::Depth(unsigned most)
    : by_demand_{.most = most, .now = std::clamp(most, 1U, k_first_depth)}, by_fetches_{most} {}

void Depth::tick(const Seen& seen) {
  limit_by_demand(seen);
  limit_by_fetches(seen, is_demand_foreign(seen));
}

unsigned Depth::depth() const {
  constexpr double k_has_outrun = 0.05;  // share of the time in which programs wait
  const bool gives_way = demand_.waiting != 0 && share_waiting_ < k_has_outrun;
  return std::min(gives_way ? 1 : by_demand_.now, by_fetches_.now);
}

bool Depth::Limit::end_period(std::uint64_t now_ns, const Rule& rule) {
  const Period ended = std::exchange(period, {.began_ns = now_ns});
  const double mean = ended.samples != 0 ? ended.sum_ns / static_cast<double>(ended.samples) : 0;
  if (mean != 0) best_ns = best_ns == 0 ? mean : std::min(best_ns * rule.forgetting, mean);
  const double most_ns = best_ns * rule.tolerance;
  if (mean > most_ns) {
    const auto share = static_cast<unsigned>(now * (rule.halves ? 0.5 : most_ns / mean));
    now = std::max(1U, std::min(share, now - 1));
    was_set_back = true;
    return true;
  }
  if (ended.most_in_flight >= now) now = std::min(now + (was_set_back ? 1 : rule.step), most);
  return false;
}

void Depth::limit_by_demand(const Seen& seen) {
  constexpr double k_weight = 1.0 / 64;
  const cache::Demand before = std::exchange(demand_, {});
  for (const cache::Demand& job : seen.jobs) demand_ += job;
  share_waiting_ += ((demand_.waiting != 0 ? 1.0 : 0.0) - share_waiting_) * k_weight;
  Period& period = by_demand_.period;
  period.most_in_flight = std::max(period.most_in_flight, seen.in_flight);
  if (period.began_ns == 0) {
    period.began_ns = seen.now_ns;
    return;
  }
  if (const std::uint64_t fetches = grown(demand_.fetches, before.fetches);
      fetches != 0 && demand_.ns >= before.ns) {
    period.sum_ns += static_cast<double>(demand_.ns - before.ns) / static_cast<double>(fetches);
    ++period.samples;
  }
  // A new period also begins if the clock was set back.
  if (seen.now_ns - period.began_ns < k_period_ns) return;
  by_demand_.end_period(
      seen.now_ns, {.tolerance = 1.5, .forgetting = 1.01, .halves = true, .step = by_demand_.now});
}

bool Depth::is_demand_foreign(const Seen& seen) {
  constexpr double k_weight = 1.0 / 16, k_ahead = 1.0 / 8, k_least = 0.1;
  const auto note = [](double& sum, std::uint64_t now, std::uint64_t before) {
    sum += static_cast<double>(grown(now, before)) - k_weight * sum;
  };
  std::map<std::uint32_t, Job> jobs;
  double foreign = 0;
  for (const cache::Demand& row : seen.jobs) {
    const auto known = jobs_.find(row.job);
    Job& job = jobs[row.job] = known != jobs_.end() ? known->second : Job{row};
    note(job.fetches, row.fetches, job.last.fetches);
    note(job.ahead, row.ahead, job.last.ahead);
    job.last = row;
    if (row.job != seen.planned_job && job.ahead < k_ahead * job.fetches) foreign += job.fetches;
  }
  jobs_ = std::move(jobs);
  note(sum_overtaken_, seen.overtaken, std::exchange(overtaken_, seen.overtaken));
  return foreign > k_least && foreign > 2 * sum_overtaken_;
}

void Depth::limit_by_fetches(const Seen& seen, bool is_foreign) {
  constexpr std::uint64_t k_hold_ns =
      500'000'000;  // how long the limit stays after foreign demand has ended
  constexpr std::uint64_t k_anew_ns = 10'000'000'000;  // the pause between measurements with one
                                                       // fetch in flight
  constexpr unsigned k_fetches_of_period = 16;
  // Up to this limit, a step doubles the limit; above this limit, a step adds a quarter, because an
  // overshoot costs the program a period of slow fetches.
  constexpr unsigned k_few = 4;
  Limit& limit = by_fetches_;
  Period& period = limit.period;
  period.sum_ns += static_cast<double>(seen.ns);
  period.samples += seen.fetches;
  if (is_foreign) foreign_ns_ = seen.now_ns;
  if (seen.now_ns - foreign_ns_ >= k_hold_ns) {
    measured_ns_ = 0;
    limit = {limit.most};
    return;
  }
  // The measurement also restarts if the clock was set back.
  if (measured_ns_ == 0 || (period.samples != 0 && seen.now_ns - measured_ns_ >= k_anew_ns)) {
    measured_ns_ = seen.now_ns;
    is_draining_ = true;
    limit = {.most = limit.most, .now = 1, .period = {.began_ns = seen.now_ns}};
  }
  if (is_draining_) return drain(seen);
  period.most_in_flight = std::max(period.most_in_flight, seen.in_flight);
  const bool is_enough = period.samples >= k_fetches_of_period;
  if (seen.now_ns - period.began_ns < (is_enough ? k_period_ns : k_longest_period_ns)) return;
  // No measurable fetch has ended, because only blocks of large files are being fetched.
  if (period.samples == 0) limit.now = limit.most;
  is_draining_ = limit.end_period(
      seen.now_ns, {.tolerance = 1.1, .step = limit.now < k_few ? limit.now : limit.now / k_few});
}

void Depth::drain(const Seen& seen) {
  Limit& limit = by_fetches_;
  const bool has_samples = limit.period.samples != 0, is_over = seen.in_flight <= limit.now;
  // A fetch that has been in flight for this long either hangs or fetches a large file; its end
  // cannot be predicted.
  const bool is_stuck = !has_samples && seen.now_ns - limit.period.began_ns >= k_longest_period_ns;
  if (is_stuck && !is_over) limit.now = limit.most;
  is_draining_ = !is_over && !is_stuck;
  if (has_samples || !is_draining_) limit.period = {.began_ns = seen.now_ns};
}

}  // namespace cube::prefetch
