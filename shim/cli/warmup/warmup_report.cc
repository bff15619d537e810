#include "shim/cli/warmup/warmup_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "shim/cli/printable.h"
#include "shim/cli/settings.h"

namespace cube::cli {
namespace {

const char* name_of(WarmupReport::What what) {
  switch (what) {
    case WarmupReport::What::load: return "load";
    case WarmupReport::What::cluster: return "cluster";
    case WarmupReport::What::names: return "metadata";
    case WarmupReport::What::check: return "check";
    case WarmupReport::What::dry_run: return "dry-run";
    case WarmupReport::What::evict: break;
  }
  return "evict";
}

std::uint64_t loaded_files(const prefetch::PrefetchCounts& loaded) {
  return loaded.fetched + loaded.cached + loaded.demanded;
}

std::uint64_t bytes_per_s(std::uint64_t bytes, double seconds) {
  return static_cast<std::uint64_t>(static_cast<double>(bytes) / std::max(seconds, 1e-6));
}

std::string dumped(const nlohmann::ordered_json& report) {
  return report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

CacheRoom room_of(const cache::Region& region) {
  const auto& layout = region.layout();
  return {region.path(), std::uint64_t{layout.segment_bytes} * layout.segment_count,
          region.header().used_bytes.load(), region.header().records.load()};
}

std::uint64_t WarmupReport::skipped_files() const {
  std::uint64_t sum = 0;
  for (const auto& row : skipped) sum += row.is_wanted ? 0 : row.count;
  return sum;
}

std::string WarmupReport::text() const {
  std::string text = signal != 0 ? "interrupted: " : "";
  const std::uint64_t left_out = skipped_files();
  if (what == What::names) {
    text += fmt::format(
        "{} listed: {}, {}; {:.1f} s\n", counted(names.directories, "directory", "directories"),
        counted(names.names, "name", "names"), counted(names.stats, "stat", "stats"), seconds);
    for (const auto& row : names.skipped)
      text += fmt::format("skipped: {} {}, the first is {}\n",
                          counted(row.count, "directory", "directories"), row.reason,
                          printable(row.first));
  } else if (what == What::cluster) {
    text += fmt::format(
        "{}: {} there already, {} shared ({}), {} shared by other nodes, {} skipped; {:.1f} "
        "s",
        counted(cluster.there + cluster.shared + cluster.by_others + left_out, "file", "files"),
        cluster.there, cluster.shared, in_units(cluster.shared_bytes), cluster.by_others, left_out,
        seconds);
    if (cluster.shared != 0)
      text += fmt::format(", {}/s", in_units(bytes_per_s(cluster.shared_bytes, seconds)));
    text +=
        fmt::format("\n{} read at the origin ({})\n", cluster.read, in_units(cluster.read_bytes));
  } else if (what == What::load) {
    text += fmt::format("{}: {} fetched ({}), {} cached already",
                        counted(loaded_files(loaded) + left_out, "file", "files"), loaded.fetched,
                        in_units(loaded.fetched_bytes), loaded.cached);
    if (loaded.demanded != 0) text += fmt::format(", {} read by the job itself", loaded.demanded);
    text += fmt::format(", {} skipped; {:.1f} s", left_out, seconds);
    if (loaded.fetched != 0)
      text += fmt::format(", {}/s", in_units(bytes_per_s(loaded.fetched_bytes, seconds)));
    text += '\n';
    if (names.directories != 0)
      text += fmt::format("{} listed: {}\n", counted(names.directories, "directory", "directories"),
                          counted(names.names, "name", "names"));
  } else if (what == What::evict) {
    text += fmt::format("{}: {} forgotten ({}), {} not cached, {} skipped\n",
                        counted(found.cached + found.absent + left_out, "file", "files"),
                        found.cached, in_units(found.cached_bytes), found.absent, left_out);
  } else {
    const std::uint64_t files = found.cached + found.absent;
    const double share =
        files == 0 ? 0.0 : 100.0 * static_cast<double>(found.cached) / static_cast<double>(files);
    text += fmt::format("{}, {}: {} cached ({:.1f} %, {}), {} {} ({}), {} skipped\n",
                        counted(files + left_out, "file", "files"),
                        in_units(found.cached_bytes + found.absent_bytes), found.cached, share,
                        in_units(found.cached_bytes), found.absent,
                        what == What::check ? "not" : "to be fetched", in_units(found.absent_bytes),
                        left_out);
  }
  for (const auto& row : skipped) {
    const std::string sizes =
        row.bytes == 0
            ? ""
            : fmt::format(" ({} of {} missing)", in_units(row.missing), in_units(row.bytes));
    text += fmt::format("{}: {} {}{}, the first is {}\n", row.is_wanted ? "left out" : "skipped",
                        row.count, row.reason, sizes, printable(row.first));
  }
  if (!room.region.empty())
    text += fmt::format("{}: {} of {} used by {}\n", room.region, in_units(room.used),
                        in_units(room.capacity), counted(room.files, "record", "records"));
  if (what == What::evict && found.cached != 0)
    text += "this frees no memory: forgotten files keep their room\n";
  if (what == What::dry_run &&
      found.absent_bytes > room.capacity - std::min(room.used, room.capacity) && room.capacity != 0)
    text += "there is not room for all of it: give the job a larger CUBESHIM_RAM\n";
  return text;
}

std::string WarmupReport::json() const {
  nlohmann::ordered_json report = {
      {"what", name_of(what)}, {"interrupted", signal != 0}, {"seconds", seconds}};
  const auto add_ram = [&] {
    report["ram"] = {{"region", room.region},
                     {"capacity", room.capacity},
                     {"used", room.used},
                     {"entries", room.files}};
  };
  if (what == What::load) {
    report["fetched"] = loaded.fetched;
    report["fetched_bytes"] = loaded.fetched_bytes;
    report["cached"] = loaded.cached;
    report["demanded"] = loaded.demanded;
    report["names"] = {{"directories", names.directories}, {"names", names.names}};
  } else if (what == What::cluster) {
    report["there"] = cluster.there;
    report["shared"] = cluster.shared;
    report["shared_bytes"] = cluster.shared_bytes;
    report["by_others"] = cluster.by_others;
    report["read"] = cluster.read;
    report["read_bytes"] = cluster.read_bytes;
  } else if (what == What::names) {
    report["directories"] = names.directories;
    report["names"] = names.names;
    report["stats"] = names.stats;
    report["reasons"] = nlohmann::ordered_json::array();
    for (const auto& row : names.skipped)
      report["reasons"].push_back(
          {{"reason", row.reason}, {"directories", row.count}, {"first", row.first}});
    add_ram();
    return dumped(report);
  } else if (what == What::evict) {
    report["evicted"] = found.cached;
    report["evicted_bytes"] = found.cached_bytes;
    report["freed_bytes"] = 0;
    report["absent"] = found.absent;
  } else {
    report["cached"] = found.cached;
    report["cached_bytes"] = found.cached_bytes;
    report["absent"] = found.absent;
    report["absent_bytes"] = found.absent_bytes;
  }
  report["skipped"] = skipped_files();
  report["reasons"] = nlohmann::ordered_json::array();
  for (const auto& row : skipped) {
    report["reasons"].push_back({{"reason", row.reason},
                                 {"files", row.count},
                                 {"first", row.first},
                                 {"wanted", row.is_wanted}});
    if (row.bytes == 0) continue;
    report["reasons"].back()["bytes"] = row.bytes;
    report["reasons"].back()["missing_bytes"] = row.missing;
  }
  if (what != What::cluster) add_ram();
  return dumped(report);
}

}  // namespace cube::cli
