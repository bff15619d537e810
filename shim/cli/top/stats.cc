// cubeshim stats: shows the counts of a cache's jobs since their start.
#include <fmt/core.h>
#include <poll.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cache/report/classic_report.h"
#include "cache/report/json_report.h"
#include "cache/report/text_report.h"
#include "shim/cli/commands.h"
#include "shim/cli/complaint.h"
#include "shim/cli/settings.h"
#include "shim/cli/top/seen_servers.h"
#include "shim/cli/wrong_use.h"

namespace cube::cli {
namespace {

struct StatsCommand {
  Settings settings;
  bool json = false;
  unsigned watch = 0;  // seconds between two outputs
};

void print_region(cache::Region& region, bool json, bool classic) {
  if (!json) {
    fmt::print("{}\n", region_line(region));
    for (const SeenServer& server : servers_of(region))
      fmt::print("server {}: {}; {} of {} used, {} items\n", server.name, server.state,
                 in_units(server.used), in_units(server.capacity), server.entries);
  } else {
    fmt::print(
        R"({{"region":"{}","processes":{},"servers":{},"jobs":[)", region.path(),
        region.count_processes(),
        json_of(servers_of(region)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  const char* comma = "";
  for (std::uint32_t i = 0; i < region.layout().job_rows; ++i) {
    const auto& row = region.job_row(i);
    if (row.leader.pid == 0) continue;
    const auto totals = cache::collect(region, i);
    if (json) {
      std::string report(cache::report_as_json(totals).view());
      while (!report.empty() && report.back() == '\n') report.pop_back();
      fmt::print(R"({}{{"pid":{},"report":{}}})", comma, row.leader.pid, report);
      comma = ",";
      continue;
    }
    fmt::print("job of process {}{}\n", row.leader.pid,
               base::liveness_of(row.leader) == base::Liveness::dead ? ", which has ended" : "");
    fmt::print(
        "{}",
        (classic ? cache::report_as_classic(totals, 0, 0) : cache::report_as_text(totals)).view());
  }
  if (json) fmt::print("]}}\n");
  std::fflush(stdout);
}

int stats(const StatsCommand& stats) {
  const auto parsed = stats.settings.parse();
  for (const auto& error : parsed.errors) tell("cubeshim: {}\n", error);
  if (!parsed.errors.empty()) return 2;
  while (true) {
    const std::unique_ptr<cache::Region> region(region_or_complaint(parsed.config));
    if (region == nullptr) return 1;
    print_region(*region, stats.json, parsed.config.stats_format == base::StatsFormat::classic);
    if (stats.watch == 0) return 0;
    poll(nullptr, 0, static_cast<int>(stats.watch * 1000));
  }
}

}  // namespace

void add_stats(CLI::App& app, int& status) {
  CLI::App* const command =
      app.add_subcommand("stats", "Show what the jobs of a cache have done so far");
  const auto options = std::make_shared<StatsCommand>();
  options->settings.add_to(*command, Settings::Which::of_the_region);
  command->add_flag("--json", options->json, "One JSON object per line");
  command
      ->add_option("--watch", options->watch,
                   "Show it again at this interval in seconds, until the cache is removed")
      ->type_name("SECONDS")
      ->check(whole_number(1, 86400));
  command->callback([options, &status] { status = stats(*options); });
}

}  // namespace cube::cli
