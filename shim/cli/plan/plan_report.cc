#include "shim/cli/plan/plan_report.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "shim/cli/settings.h"

namespace cube::cli {
namespace {

using PlanJson = nlohmann::ordered_json;
using Time = std::optional<double>;

constexpr const char* k_unknown = "not measured";

std::string us_text(const Time& ns) { return ns ? fmt::format("{:.1f} us", *ns / 1e3) : k_unknown; }

std::string seconds_text(const Epoch& epoch) {
  return epoch.seconds ? fmt::format("{}{:.2f} s", epoch.is_at_least ? ">" : "", *epoch.seconds)
                       : k_unknown;
}

std::string room_text(std::uint64_t bytes) { return bytes == 0 ? "-" : in_units(bytes); }

std::string plan_row(const Planned& plan) {
  const auto& [wish, forecast] = plan;
  return fmt::format("{:>11} {:>11} {:>5} {:>5} {:>8.1f} % {:>13} {:>13}\n", room_text(wish.ram),
                     room_text(wish.disk), wish.nodes, wish.has_pack ? "yes" : "no",
                     100 * forecast.later.hit_ratio, seconds_text(forecast.first),
                     seconds_text(forecast.later));
}

// Draws a bar for the hit ratio in ASCII, which terminals of any encoding can show.
std::string point_text(const Planned& plan) {
  constexpr double k_bar = 40;
  const Epoch& epoch = plan.forecast.later;
  const auto length = static_cast<std::size_t>(std::lround(k_bar * epoch.hit_ratio));
  return fmt::format("{:>11} {:>8.1f} % {:>13} |{}\n", room_text(plan.wish.ram),
                     100 * epoch.hit_ratio, seconds_text(epoch), std::string(length, '#'));
}

std::string observed_text(const Observed& o) {
  const double profiler = o.profiler_seconds / o.readers / o.seconds;
  return fmt::format(
      "Observed {}: {} in {}, {:.1f} epochs in {:.2f} s;\n"
      "{:.1f} processes read at a time; the profiler took {:.1f} % of the time.\n"
      "A file took: {} from the origin, {} from memory,\n"
      "{} from a disk, {} from a pack on the origin.\n\n",
      o.has_cache ? "with the cache" : "without a cache", in_units(o.bytes),
      counted(o.files.size(), "file", "files"), o.epochs, o.seconds, o.readers, 100 * profiler,
      us_text(o.origin_ns), us_text(o.memory_ns), us_text(o.tier_ns), us_text(o.packed_ns));
}

PlanJson us_json(const Time& ns) { return ns ? PlanJson(*ns / 1e3) : PlanJson(nullptr); }

PlanJson epoch_json(const Epoch& epoch) {
  return {{"hit_ratio", epoch.hit_ratio},
          {"seconds", epoch.seconds ? PlanJson(*epoch.seconds) : PlanJson(nullptr)},
          {"at_least", epoch.is_at_least}};
}

}  // namespace

std::string plans_as_text(const Observed& observed, const Plans& plans) {
  std::string text = observed_text(observed);
  text += fmt::format("{:>11} {:>11} {:>5} {:>5} {:>10} {:>13} {:>13}\n", "RAM", "disk", "nodes",
                      "pack", "hit ratio", "first epoch", "later epochs");
  bool is_at_least = false, has_nodes = false, lacks_times = false;
  for (const Planned& plan : plans.table) {
    text += plan_row(plan);
    is_at_least = is_at_least || plan.forecast.later.is_at_least;
    has_nodes = has_nodes || plan.wish.nodes > 1;
    lacks_times = lacks_times || !plan.forecast.first.seconds || !plan.forecast.later.seconds;
  }
  text += fmt::format("\n{:>11} {:>10} {:>13}  without disk and pack\n", "RAM", "hit ratio",
                      "later epochs");
  for (const Planned& point : plans.curve) text += point_text(point);
  text += "\n";
  if (is_at_least)
    text += "> hits are not included: the run without a cache could not measure their time.\n";
  if (lacks_times)
    text +=
        "not measured: mappings, files above CUBESHIM_MAX_FILE and a disk (--disk-dir)\n"
        "need a run with the cache; a pack needs a run with --observe.\n";
  if (has_nodes)
    text +=
        "Several nodes: once the memory of each is full; their load on the origin was\n"
        "not measured.\n";
  if (plans.settings.empty()) return text + "No memory holds all of these files.\n";
  text += plans.settings.size() == 1 ? "All files in memory:\n" : "All files on this machine:\n";
  for (const auto& [variable, value] : plans.settings)
    text += fmt::format("  export {}={}\n", variable, value);
  return text;
}

std::string plans_as_json(const Observed& o, const Plans& plans) {
  PlanJson json = {{"version", 1},
                   {"observed",
                    {{"files", o.files.size()},
                     {"bytes", o.bytes},
                     {"epochs", o.epochs},
                     {"processes", o.processes},
                     {"readers", o.readers},
                     {"with_cache", o.has_cache},
                     {"seconds", o.seconds},
                     {"profiler_seconds", o.profiler_seconds},
                     {"origin_us", us_json(o.origin_ns)},
                     {"memory_us", us_json(o.memory_ns)},
                     {"tier_us", us_json(o.tier_ns)},
                     {"packed_us", us_json(o.packed_ns)}}},
                   {"plans", PlanJson::array()},
                   {"curve", PlanJson::array()}};
  for (const auto& [wish, forecast] : plans.table)
    json["plans"].push_back({{"ram", wish.ram},
                             {"disk", wish.disk},
                             {"nodes", wish.nodes},
                             {"pack", wish.has_pack},
                             {"first", epoch_json(forecast.first)},
                             {"later", epoch_json(forecast.later)}});
  for (const auto& [wish, forecast] : plans.curve) {
    PlanJson point = {{"ram", wish.ram}};
    point.update(epoch_json(forecast.later));
    json["curve"].push_back(std::move(point));
  }
  json["settings"] = plans.settings;
  return json.dump() + "\n";
}

}  // namespace cube::cli
