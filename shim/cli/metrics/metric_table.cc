#include "shim/cli/metrics/metric_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "cache/base/settings/tier_kinds.h"
#include "cache/report/figures.h"

namespace cube::cli {
namespace {

using base::Counter;
using cache::JobTotals;
using cache::Unit;

// The help text of several figures that form one family.
struct SharedHelp {
  std::string_view family, help;
};
constexpr SharedHelp k_shared_help[] = {
    {"cubeshim_hits_total", "opens: answered from this tier, with one stat at the origin at most"},
    {"cubeshim_bypassed_total", "opens: not served from the cache, for this reason"},
    {"cubeshim_blocks_fetched_bytes_total",
     "bytes: of large files, read from this tier by fetches"},
    {"cubeshim_tier_capacity_bytes", "bytes: room of the tier; left out where it is not known"},
    {"cubeshim_tier_used_bytes", "bytes: used of the tier; left out where it is not known"},
    {"cubeshim_tier_entries", "records: kept in the tier; left out where it is not known"},
    {"cubeshim_tier_unwritten",
     "records: not written yet at the last check, or at the end of a job for lack of time"},
};

std::string_view name_of(Unit unit) {
  switch (unit) {
    case Unit::opens: return "opens";
    case Unit::calls: return "calls";
    case Unit::bytes: return "bytes";
    case Unit::files: return "files";
    case Unit::records: return "records";
    case Unit::share: return "share";
    case Unit::us: return "us";
    case Unit::ns: return "ns";
    case Unit::ms: return "ms";
  }
  return "";
}

// "bytes_served" -> "served_bytes", "blocks.read" -> "blocks_read_bytes", "origin.bytes" ->
// "origin_bytes", "time_ns.misses" -> "misses_seconds".
std::string with_unit(std::string name, Unit unit) {
  std::replace(name.begin(), name.end(), '.', '_');
  constexpr std::string_view k_time = "time_ns_";
  if (unit == Unit::ns)
    return name.substr(name.starts_with(k_time) ? k_time.size() : 0) + "_seconds";
  if (unit != Unit::bytes || name.ends_with("_bytes")) return name;
  constexpr std::string_view k_head = "bytes_";
  if (name.starts_with(k_head)) name.erase(0, k_head.size());
  return name + "_bytes";
}

std::function<bool(const JobTotals&)> has_tier(std::optional<std::size_t> tier) {
  return [tier](const JobTotals& job) {
    return !tier || job.tiers[*tier].capacity != 0 || job.tiers[*tier].is_there;
  };
}

MetricRow row_of(std::string_view name, Unit unit, std::string_view help, MetricKind kind) {
  MetricRow row;
  row.family = fmt::format("cubeshim_{}{}", with_unit(std::string(name), unit),
                           kind == MetricKind::counter ? "_total" : "");
  const auto* const shared =
      std::find_if(std::begin(k_shared_help), std::end(k_shared_help),
                   [&](const auto& one) { return one.family == row.family; });
  row.help = shared != std::end(k_shared_help) ? std::string(shared->help)
                                               : fmt::format("{}: {}", name_of(unit), help);
  row.kind = kind;
  row.detail = help;
  row.is_in = has_tier({});
  return row;
}

MetricRow row_of_counter(Counter counter, std::string_view place, Unit unit,
                         std::string_view help) {
  std::string_view name = place, value;
  std::optional<std::size_t> tier;
  for (std::size_t i = 0; i < base::k_tiers; ++i) {
    const base::TierKind& kind = base::k_tier_kinds[i];
    const bool is_hits = kind.hits == counter, is_blocks = kind.blocks == counter;
    // All fields in a tier's object belong to the tier.
    if (!is_hits && !is_blocks && place.substr(0, place.find('.')) != kind.name) continue;
    tier = i;
    if (is_blocks) name = "blocks.fetched";
    if (is_hits || is_blocks) value = kind.name;
  }
  if (counter == Counter::hits_ram) value = "ram";
  if (counter == Counter::hits_ram || (tier && base::k_tier_kinds[*tier].hits == counter))
    name = "hits";
  MetricRow row = row_of(name, unit, help, MetricKind::counter);
  if (!value.empty()) row.label = "tier";
  row.value = value;
  row.is_in = has_tier(tier);
  const double scale = unit == Unit::ns ? 1e-9 : 1;
  row.value_of = [counter, scale](const JobTotals& job) {
    return scale * static_cast<double>(job.totals[counter]);
  };
  return row;
}

MetricRow row_of_bypassed(Counter counter, std::string_view place, std::string_view help) {
  MetricRow row = row_of("bypassed", Unit::opens, help, MetricKind::counter);
  row.label = "reason";
  row.value = place.substr(place.find('.') + 1);
  row.value_of = [counter](const JobTotals& job) {
    return static_cast<double>(job.totals[counter]);
  };
  return row;
}

void add_figure(std::vector<MetricRow>& rows, std::string_view place, Unit unit,
                std::string_view help, std::function<double(const JobTotals&)> value_of) {
  // Figures in these units are computed from other figures.
  constexpr Unit k_made[] = {Unit::opens, Unit::share, Unit::us, Unit::ns, Unit::ms};
  if (std::ranges::find(k_made, unit) != std::end(k_made)) return;
  constexpr std::string_view k_ram = "ram.";
  const bool is_ram = place.starts_with(k_ram);
  MetricRow row =
      row_of(is_ram ? "tier." + std::string(place.substr(k_ram.size())) : std::string(place), unit,
             help, MetricKind::gauge);
  if (is_ram) row.label = "tier";
  if (is_ram) row.value = "ram";
  row.value_of = std::move(value_of);
  rows.push_back(std::move(row));
}

void add_tier_figure(std::vector<MetricRow>& rows, std::string_view field, Unit unit,
                     std::string_view help, std::uint64_t (*value_of)(const base::TierStatus&)) {
  for (std::size_t tier = 0; tier < base::k_tiers; ++tier) {
    if (!cache::has_figure(tier, field)) continue;
    MetricRow row = row_of("tier." + std::string(field), unit, help, MetricKind::gauge);
    row.label = "tier";
    row.value = base::k_tier_kinds[tier].name;
    // If the capacity of a tier is unknown, the other figures are unknown, too.
    row.is_in = [tier](const JobTotals& job) { return job.tiers[tier].capacity != 0; };
    row.value_of = [tier, value_of](const JobTotals& job) {
      return static_cast<double>(value_of(job.tiers[tier]));
    };
    rows.push_back(std::move(row));
  }
}

std::vector<MetricRow> all_rows() {
  std::vector<MetricRow> rows;
#define CUBE_COUNTER(name, place, unit, help) \
  rows.push_back(row_of_counter(Counter::name, place, Unit::unit, help));
#define CUBE_BYPASSED(name, place, is_request, reason, help) \
  rows.push_back(row_of_bypassed(Counter::name, place, help));
#define CUBE_FIGURE(figure, place, unit, help) \
  add_figure(rows, place, Unit::unit, help,    \
             [](const JobTotals& job) { return static_cast<double>(job.figure); });
#define CUBE_TIER_FIGURE(field, unit, help)       \
  add_tier_figure(rows, #field, Unit::unit, help, \
                  [](const base::TierStatus& tier) -> std::uint64_t { return tier.field; });
#include "cache/base/settings/stats.def"
  return rows;
}

MetricFamily family(std::string_view name, MetricKind kind, std::string_view help,
                    std::vector<std::string> label_names) {
  return {std::string(name), std::string(help), kind, std::move(label_names), {}};
}

}  // namespace

const std::vector<MetricRow>& metric_rows() {
  static const std::vector<MetricRow> rows = all_rows();
  return rows;
}

std::vector<MetricFamily> metric_families() {
  using enum MetricKind;
  const std::vector<std::string> of_cache = {"cache"}, of_server = {"cache", "server"};
  std::vector<MetricFamily> all = {
      family(
          k_cache_up, gauge,
          "1: the cache can be read; 0: it cannot, or there is none of a name that was asked for",
          of_cache),
      family(k_start_time, gauge, "when the cache was made; its counters begin at 0 there",
             of_cache),
      family(k_processes, gauge, "living processes that use the cache", of_cache),
      family(k_jobs, gauge, "jobs with such processes", of_cache),
  };
  for (const MetricRow& row : metric_rows()) {
    const auto known = std::find_if(all.begin(), all.end(),
                                    [&](const auto& one) { return one.name == row.family; });
    if (known != all.end()) continue;
    std::vector<std::string> label_names = of_cache;
    if (!row.label.empty()) label_names.push_back(row.label);
    all.push_back(family(row.family, row.kind, row.help, std::move(label_names)));
  }
  const std::vector<MetricFamily> rest = {
      family(k_index_full, gauge,
             "1: the index of the region has no room left, however much memory is free", of_cache),
      family(k_metadata_memory, gauge, "bytes of the region that listings and stats take",
             of_cache),
      family(k_ring, gauge,
             "bytes of the ring, through which fetched-ahead files pass once the memory is full; "
             "0: there is none yet",
             of_cache),
      family(k_depth, gauge, "current limit of prefetches in flight; 0: no process is prefetching",
             of_cache),
      family(k_hit_seconds, histogram,
             "duration of opens that are hits; sampled, 1 in 32; the sum is an estimate from the "
             "buckets",
             of_cache),
      family(k_miss_seconds, histogram,
             "duration of opens that fetch; the sum is an estimate from the buckets", of_cache),
      family(k_server_up, gauge, "1: this server of the cluster answers", of_server),
      family(k_server_used, gauge, "bytes used on the server, as it reports itself", of_server),
      family(k_server_capacity, gauge, "bytes of its room", of_server),
      family(k_server_entries, gauge, "records that it keeps", of_server),
      family(k_build_info, gauge, "1; the version of this exporter", {"version"}),
      family(k_collect_seconds, gauge, "how long it took to read all caches", {}),
  };
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

}  // namespace cube::cli
