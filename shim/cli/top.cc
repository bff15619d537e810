// cubeshim top: what the jobs of a cache do now, in rates over the last seconds.
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cache/base/clock.h"
#include "cache/report/collect.h"
#include "shim/cli/commands.h"
#include "shim/cli/settings.h"

namespace cube::cli {
namespace {

using base::Counter;

struct Top {
  Settings settings;
  unsigned interval = 2, count = 0;
  bool json = false;
};

struct JobSample {
  base::ProcessId leader;
  bool is_alive = false;
  cache::JobTotals totals;
};

struct TopSample {
  std::uint64_t ns = 0;
  std::vector<JobSample> jobs;
};

// The figures of one job, between two samples.
struct Rates {
  std::uint32_t pid = 0;
  double opens = 0, served_bytes = 0, origin_bytes = 0, prefetched = 0;  // in a second
  double hit_rate = 0, hit_p99_us = 0, miss_p99_us = 0;
};

TopSample take_sample(cache::Region& region) {
  TopSample sample;
  sample.ns = base::monotonic_ns();
  for (std::uint32_t i = 0; i < region.layout().job_rows; ++i) {
    const auto& row = region.job_row(i);
    if (row.leader.pid == 0) continue;
    sample.jobs.push_back({row.leader, base::liveness_of(row.leader) != base::Liveness::dead, cache::collect(region, i)});
  }
  return sample;
}

template <std::size_t N>
double p99_us(std::array<std::uint64_t, N> now, const std::array<std::uint64_t, N>& before) {
  for (std::size_t i = 0; i < N; ++i) now[i] -= std::min(now[i], before[i]);
  return static_cast<double>(base::quantile_ns(now, 0.99)) / 1000;
}

Rates rates_of(const JobSample& now, const cache::JobTotals& before, double seconds) {
  const auto rise = [](std::uint64_t of, std::uint64_t from) { return static_cast<double>(of - std::min(of, from)); };
  const auto per_second = [&](Counter c) { return rise(now.totals.totals[c], before.totals[c]) / seconds; };
  Rates rates;
  rates.pid = now.leader.pid;
  rates.opens = rise(now.totals.opens(), before.opens()) / seconds;
  rates.served_bytes = per_second(Counter::bytes_served);
  rates.origin_bytes = per_second(Counter::origin_bytes);
  rates.prefetched = per_second(Counter::prefetch_fetched);
  const double requests = rise(now.totals.requests(), before.requests());
  rates.hit_rate = requests == 0 ? 0 : rise(now.totals.hits(), before.hits()) / requests;
  rates.hit_p99_us = p99_us(now.totals.totals.hit_latency, before.totals.hit_latency);
  rates.miss_p99_us = p99_us(now.totals.totals.miss_latency, before.totals.miss_latency);
  return rates;
}

// The figures of jobs that live, and of those that have ended in between.
std::vector<Rates> all_rates(const TopSample& now, const TopSample& before, double seconds) {
  std::vector<Rates> all;
  for (const auto& job : now.jobs) {
    const auto known =
        std::find_if(before.jobs.begin(), before.jobs.end(), [&](const auto& b) { return b.leader == job.leader; });
    if (!job.is_alive && (known == before.jobs.end() || !known->is_alive)) continue;
    all.push_back(rates_of(job, known == before.jobs.end() ? cache::JobTotals{} : known->totals, seconds));
  }
  return all;
}

void print_text(cache::Region& region, const std::vector<Rates>& all) {
  const auto bytes = [](double n) { return in_units(static_cast<std::uint64_t>(n)); };
  if (isatty(STDOUT_FILENO) != 0) fmt::print("\x1b[H\x1b[2J");
  fmt::print("{}\n{:>8} {:>10} {:>7} {:>13} {:>13} {:>12} {:>11} {:>11}\n", region_line(region), "PID", "opens/s", "hits",
             "served/s", "origin/s", "prefetched/s", "hit p99", "miss p99");
  for (const auto& job : all) {
    fmt::print("{:>8} {:>10.0f} {:>5.1f} % {:>13} {:>13} {:>12.0f} {:>8.1f} us {:>8.0f} us\n", job.pid, job.opens,
               100 * job.hit_rate, bytes(job.served_bytes), bytes(job.origin_bytes), job.prefetched, job.hit_p99_us,
               job.miss_p99_us);
  }
}

void print_json(cache::Region& region, const std::vector<Rates>& all, double seconds) {
  auto jobs = nlohmann::ordered_json::array();
  for (const auto& job : all) {
    jobs.push_back({{"pid", job.pid},
                    {"opens_per_s", job.opens},
                    {"hit_rate", job.hit_rate},
                    {"bytes_served_per_s", job.served_bytes},
                    {"origin_bytes_per_s", job.origin_bytes},
                    {"prefetched_per_s", job.prefetched},
                    {"latency_us", {{"hit_p99", job.hit_p99_us}, {"miss_p99", job.miss_p99_us}}}});
  }
  const nlohmann::ordered_json line = {{"region", region.path()},
                                       {"seconds", seconds},
                                       {"processes", region.count_processes()},
                                       {"used", region.header().used_bytes.load()},
                                       {"entries", region.header().records.load()},
                                       {"jobs", jobs}};
  fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

int top(const Top& top) {
  const auto parsed = top.settings.parse();
  for (const auto& error : parsed.errors) fmt::print(stderr, "cubeshim: {}\n", error);
  if (!parsed.errors.empty()) return 2;
  TopSample before;
  for (unsigned shown = 0;; ++shown) {
    // Anew each time: the next job may have made another.
    const std::unique_ptr<cache::Region> region(region_or_complaint(parsed.config));
    if (region == nullptr) return 1;
    TopSample now = take_sample(*region);
    // The first shows who is there; there is nothing yet to compare with.
    if (shown == 0) before = now;
    const double seconds = shown == 0 ? 1 : static_cast<double>(now.ns - before.ns) / 1e9;
    const auto all = all_rates(now, before, seconds);
    if (top.json) {
      print_json(*region, all, seconds);
    } else {
      print_text(*region, all);
    }
    std::fflush(stdout);
    if (top.count != 0 && shown + 1 >= top.count) return 0;
    before = std::move(now);
    poll(nullptr, 0, static_cast<int>(top.interval * 1000));
  }
}

}  // namespace

void add_top(CLI::App& app, int& status) {
  CLI::App* const command = app.add_subcommand("top", "Show what the jobs of a cache do now, in a second");
  const auto options = std::make_shared<Top>();
  options->settings.add_to(*command, Settings::Which::of_the_region);
  command
      ->add_option("--interval", options->interval, "Show it again every so many seconds, until the cache goes; the default is 2")
      ->type_name("SECONDS")
      ->check(CLI::Range(1U, 86400U).description(""));
  command->add_option("--count", options->count, "End when it has been shown so often")->type_name("TIMES");
  command->add_flag("--json", options->json, "One JSON object a line");
  command->callback([options, &status] { status = top(*options); });
}

}  // namespace cube::cli
