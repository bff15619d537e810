// cubeshim top: what the jobs of a cache do now, in rates over the last seconds.
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cache/base/clock.h"
#include "cache/report/figures.h"
#include "shim/cli/commands.h"
#include "shim/cli/settings.h"
#include "shim/cli/wrong_use.h"

namespace cube::cli {
namespace {

// A column of the table and a field of the JSON object. The figure is that of the time between two samples; counts are of a
// second.
struct Column {
  const char* heading;
  int width;
  const char* key;  // JSON pointer
  const char* group;
  const char* figure;
};
constexpr Column k_columns[] = {
    {"opens/s", 10, "/opens_per_s", "", "opens"},
    {"hits", 7, "/hit_rate", "", "hit_rate"},
    {"served/s", 13, "/bytes_served_per_s", "", "bytes_served"},
    {"origin/s", 13, "/origin_bytes_per_s", "origin", "bytes"},
    {"prefetched/s", 12, "/prefetched_per_s", "prefetch", "fetched"},
    {"hit p99", 11, "/latency_us/hit_p99", "latency_us.hit", "p99"},
    {"miss p99", 11, "/latency_us/miss_p99", "latency_us.miss", "p99"},
};

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

// The figures of one job between two samples.
struct Rise {
  std::uint32_t pid = 0;
  double seconds = 1;
  cache::JobTotals totals;
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

template <typename Counts>
void subtract(Counts& now, const Counts& before) {
  for (std::size_t i = 0; i < now.size(); ++i) now[i] -= std::min(now[i], before[i]);
}

Rise rise_of(const JobSample& now, const cache::JobTotals& before, double seconds) {
  Rise rise{now.leader.pid, seconds, now.totals};
  subtract(rise.totals.totals.counters, before.totals.counters);
  subtract(rise.totals.totals.hit_latency, before.totals.hit_latency);
  subtract(rise.totals.totals.miss_latency, before.totals.miss_latency);
  return rise;
}

const cache::Figure& figure_of(const Column& column) {
  const auto all = cache::figures();
  return *std::find_if(all.begin(), all.end(), [&](const auto& f) { return f.group == column.group && f.name == column.figure; });
}

double value_of(const cache::Figure& figure, const Rise& rise) {
  return figure.real_of(rise.totals) / (figure.is_count() ? rise.seconds : 1);
}

std::string text_of(cache::Unit unit, double value) {
  switch (unit) {
    case cache::Unit::bytes: return in_units(static_cast<std::uint64_t>(value));
    case cache::Unit::share: return fmt::format("{:.1f} %", 100 * value);
    case cache::Unit::us: return fmt::format("{:.{}f} us", value, value < 1000 ? 1 : 0);
    default: return fmt::format("{:.0f}", value);
  }
}

// The rises of jobs that live, and of those that have ended in between.
std::vector<Rise> all_rises(const TopSample& now, const TopSample& before, double seconds) {
  std::vector<Rise> all;
  for (const auto& job : now.jobs) {
    const auto known =
        std::find_if(before.jobs.begin(), before.jobs.end(), [&](const auto& b) { return b.leader == job.leader; });
    if (!job.is_alive && (known == before.jobs.end() || !known->is_alive)) continue;
    all.push_back(rise_of(job, known == before.jobs.end() ? cache::JobTotals{} : known->totals, seconds));
  }
  return all;
}

void print_text(cache::Region& region, const std::vector<Rise>& all) {
  if (isatty(STDOUT_FILENO) != 0) fmt::print("\x1b[H\x1b[2J");
  fmt::print("{}\n{:>8}", region_line(region), "PID");
  for (const Column& column : k_columns) fmt::print(" {:>{}}", column.heading, column.width);
  fmt::print("\n");
  for (const Rise& job : all) {
    fmt::print("{:>8}", job.pid);
    for (const Column& column : k_columns) {
      const cache::Figure& figure = figure_of(column);
      fmt::print(" {:>{}}", text_of(figure.unit, value_of(figure, job)), column.width);
    }
    fmt::print("\n");
  }
}

void print_json(cache::Region& region, const std::vector<Rise>& all, double seconds) {
  auto jobs = nlohmann::ordered_json::array();
  for (const Rise& job : all) {
    nlohmann::ordered_json fields = {{"pid", job.pid}};
    for (const Column& column : k_columns)
      fields[nlohmann::ordered_json::json_pointer(column.key)] = value_of(figure_of(column), job);
    jobs.push_back(std::move(fields));
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
    const auto all = all_rises(now, before, seconds);
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
      ->check(whole_number(1, 86400));
  command->add_option("--count", options->count, "End when it has been shown so often")
      ->type_name("TIMES")
      ->check(whole_number(1, UINT32_MAX));
  command->add_flag("--json", options->json, "One JSON object a line");
  command->callback([options, &status] { status = top(*options); });
}

}  // namespace cube::cli
