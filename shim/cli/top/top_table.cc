#include "shim/cli/top/top_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>

#include "cache/report/figures.h"
#include "shim/cli/settings.h"

namespace cube::cli {
namespace {

constexpr std::size_t k_top_width = 80;

constexpr TopColumn k_columns[] = {
    {"opens/s", 8, "/opens_per_s", "", "opens"},
    {"hits", 6, "/hit_rate", "", "hit_rate"},
    {"misses/s", 8, "/misses_per_s", "", "misses"},
    {"served/s", 8, "/bytes_served_per_s", "", "bytes_served"},
    {"origin/s", 8, "/origin_bytes_per_s", "origin", "bytes"},
    {"ahead/s", 7, "/prefetched_per_s", "prefetch", "fetched"},
    {"hit p99", 7, "/latency_us/hit_p99", "latency_us.hit", "p99"},
    {"miss p99", 8, "/latency_us/miss_p99", "latency_us.miss", "p99"},
};
// The separate table for large files, which is shown as soon as a job has opened large files.
constexpr TopColumn k_large_columns[] = {
    {"hits/s", 8, "/large/hits_per_s", "blocks", "hits"},
    {"misses/s", 8, "/large/misses_per_s", "blocks", "misses"},
    {"read/s", 8, "/large/bytes_read_per_s", "blocks", "read"},
    {"mapped/s", 8, "/large/bytes_mapped_per_s", "blocks", "mapped"},
    {"kernel/s", 8, "/large/kernel_bytes_per_s", "blocks", "kernel"},
    {"origin/s", 8, "/large/origin_bytes_per_s", "blocks", "origin"},
    {"ahead/s", 7, "/large/ahead_bytes_per_s", "blocks", "ahead"},
    {"used/s", 7, "/large/used_bytes_per_s", "blocks", "used"},
};
// The separate table for metadata of mounts, which is shown as soon as a job has queried metadata.
constexpr TopColumn k_metadata_columns[] = {
    {"lists/s", 8, "/metadata/listings_per_s", "metadata", "listings"},
    {"stats/s", 8, "/metadata/stats_per_s", "metadata", "stats"},
    {"neg/s", 8, "/metadata/negative_per_s", "metadata", "negative"},
    {"read/s", 8, "/metadata/read_per_s", "metadata", "read"},
    {"reval/s", 8, "/metadata/revalidations_per_s", "metadata", "revalidations"},
    {"ahead/s", 8, "/metadata/gathered_per_s", "metadata", "gathered"},
};
constexpr int k_pid_width = 8;

const cache::Figure& figure_of(const TopColumn& column) {
  const auto all = cache::figures();
  return *std::find_if(all.begin(), all.end(), [&](const auto& f) {
    return f.group == column.group && f.name == column.figure;
  });
}

std::string short_text(double value, double step, const char* const (&units)[5]) {
  std::size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < std::size(units); value /= step) ++unit;
  return fmt::format("{:.{}f}{}", value, unit != 0 && value < 99.95 ? 1 : 0, units[unit]);
}
std::string headings(const char* first, std::span<const TopColumn> columns) {
  std::string text = fmt::format("{:>{}}", first, k_pid_width);
  for (const TopColumn& column : columns)
    text += fmt::format(" {:>{}}", column.heading, column.width);
  return text + '\n';
}

std::string row_of(const JobRise& job, std::span<const TopColumn> columns) {
  std::string text = fmt::format("{:>{}}", job.pid, k_pid_width);
  for (const TopColumn& column : columns)
    text += fmt::format(" {:>{}}", cell_of(column, job), column.width);
  return text + '\n';
}

bool has_large_files(const JobRise& job) {
  return job.totals.totals[base::Counter::large_opens] != 0;
}

bool has_metadata(const JobRise& job) { return job.totals.metadata_answered() != 0; }

std::string table_of(const CacheLook& cache, const char* first, std::span<const TopColumn> columns,
                     bool (*is_shown)(const JobRise&)) {
  if (std::none_of(cache.jobs.begin(), cache.jobs.end(), is_shown)) return {};
  std::string text = headings(first, columns);
  for (const JobRise& job : cache.jobs) text += is_shown(job) ? row_of(job, columns) : "";
  return text;
}

}  // namespace

std::string short_bytes(double value) { return short_text(value, 1024, {"", "K", "M", "G", "T"}); }
std::string short_count(double value) { return short_text(value, 1000, {"", "k", "M", "G", "T"}); }

std::string short_value(cache::Unit unit, double value) {
  switch (unit) {
    case cache::Unit::bytes: return short_bytes(value);
    case cache::Unit::share: return fmt::format("{:.{}f}%", 100 * value, value < 0.9995 ? 1 : 0);
    case cache::Unit::us: return short_text(value, 1000, {"us", "ms", "s", "ks", "Ms"});
    case cache::Unit::ns: return short_value(cache::Unit::us, value / 1000);
    default: return short_count(value);
  }
}

std::span<const TopColumn> columns_of(TopSet set) {
  switch (set) {
    case TopSet::large: return k_large_columns;
    case TopSet::metadata: return k_metadata_columns;
    default: return k_columns;
  }
}

double value_of(const TopColumn& column, const JobRise& job) {
  const cache::Figure& figure = figure_of(column);
  return figure.real_of(job.rise) / (figure.is_count() ? job.seconds : 1);
}

std::string cell_of(const TopColumn& column, const JobRise& job) {
  return short_value(figure_of(column).unit, value_of(column, job));
}

// The state is the last column, because it may be long.
std::string table_of_servers(const CacheLook& cache) {
  if (cache.servers.empty()) return {};
  std::string text =
      fmt::format("  SERVER {:<31} {:>8} {:>8} {:>8}  state\n", "", "used", "of", "items");
  for (const SeenServer& server : cache.servers)
    text += fmt::format("  {:<38} {:>8} {:>8} {:>8}  {}\n", server.name,
                        short_bytes(static_cast<double>(server.used)),
                        short_bytes(static_cast<double>(server.capacity)),
                        short_count(static_cast<double>(server.entries)), server.state);
  return text;
}

// Returns the mean time to the first byte in milliseconds, or 0 if there was no answer.
double latency_of(const GatewayRise& gateway) {
  return gateway.rise.answers == 0 ? 0
                                   : static_cast<double>(gateway.rise.first_byte_ns) / 1e6 /
                                         static_cast<double>(gateway.rise.answers);
}

double per_second(const GatewayRise& gateway, std::uint64_t count) {
  return static_cast<double>(count) / gateway.seconds;
}

std::string table_of_gateway(const CacheLook& cache) {
  const GatewayRise& gateway = cache.gateway;
  if (gateway.gateways == 0) return {};
  const auto in_flight =
      fmt::format("{} of {}", gateway.rise.in_flight, gateway.rise.most_in_flight);
  return fmt::format(
      "  GATEWAY {:>12} {:>8} {:>8} {:>8} {:>8}\n  {:>20} {:>8} {:>8.1f} {:>8} {:>8}\n",
      "in flight", "req/s", "ms", "bytes/s", "retries/s", in_flight,
      short_count(per_second(gateway, gateway.rise.answers)), latency_of(gateway),
      short_bytes(per_second(gateway, gateway.rise.bytes)),
      short_count(per_second(gateway, gateway.rise.retries)));
}

std::string line_of_gateway(const CacheLook& cache) {
  const GatewayRise& gateway = cache.gateway;
  if (gateway.gateways == 0) return {};
  return fmt::format("{}: {} of {} requests in flight, {}/s, {:.1f} ms, {}/s, {} retries/s",
                     gateway.gateways == 1 ? "gateway" : "gateways", gateway.rise.in_flight,
                     gateway.rise.most_in_flight,
                     short_count(per_second(gateway, gateway.rise.answers)), latency_of(gateway),
                     short_bytes(per_second(gateway, gateway.rise.bytes)),
                     short_count(per_second(gateway, gateway.rise.retries)));
}

nlohmann::ordered_json json_of(const GatewayRise& gateway) {
  if (gateway.gateways == 0) return nullptr;
  return {{"gateways", gateway.gateways},
          {"in_flight", gateway.rise.in_flight},
          {"most_in_flight", gateway.rise.most_in_flight},
          {"requests_per_s", per_second(gateway, gateway.rise.answers)},
          {"latency_ms", latency_of(gateway)},
          {"bytes_per_s", per_second(gateway, gateway.rise.bytes)},
          {"retries_per_s", per_second(gateway, gateway.rise.retries)}};
}

std::string line_of_cache(const CacheLook& cache) {
  const std::string records = counted(cache.files, "record", "records");
  const std::string processes = counted(cache.processes, "process", "processes");
  std::string rest = fmt::format(": {} of {} used by {}, {}", in_units(cache.used),
                                 in_units(cache.capacity), records, processes);
  if (cache.large != 0)
    rest = fmt::format(": {} of {} used, {} by large files; {}, {}", in_units(cache.used),
                       in_units(cache.capacity), in_units(cache.large), records, processes);
  const std::size_t room = k_top_width - std::min(rest.size(), k_top_width);
  std::string name = cache.name;
  if (name.size() > room) name = name.substr(0, room - std::min<std::size_t>(3, room)) + "...";
  return name + rest;
}

std::string top_table(const CacheLook& cache) {
  std::string text = line_of_cache(cache) + "\n" + headings("PID", k_columns);
  for (const JobRise& job : cache.jobs) text += row_of(job, k_columns);
  return text + table_of(cache, "LARGE", k_large_columns, has_large_files) +
         table_of(cache, "METADATA", k_metadata_columns, has_metadata) + table_of_servers(cache) +
         table_of_gateway(cache);
}

std::string line_of_ended(const JobRise& job) {
  JobRise whole = job;
  whole.rise = job.totals;
  whole.seconds = 1;
  const auto value = [&](std::size_t i) { return value_of(k_columns[i], whole); };
  const auto& totals = job.totals.totals;
  const std::uint64_t large =
      totals[base::Counter::block_read] + totals[base::Counter::block_kernel];
  return fmt::format(
      "job {} has ended: {:.0f} opens, {} hits, {:.0f} misses, {} from the origin{}\n", job.pid,
      value(0), short_value(cache::Unit::share, value(1)), value(2), short_bytes(value(4)),
      has_large_files(job)
          ? fmt::format(", {} of large files", short_bytes(static_cast<double>(large)))
          : "");
}

std::string top_json(const CacheLook* cache) {
  auto jobs = nlohmann::ordered_json::array();
  if (cache == nullptr)
    return nlohmann::ordered_json({{"region", nullptr}, {"jobs", jobs}}).dump() + "\n";
  for (const JobRise& job : cache->jobs) {
    nlohmann::ordered_json fields = {{"pid", job.pid}, {"ended", job.is_over}};
    for (const TopSet set : k_top_sets) {
      for (const TopColumn& column : columns_of(set))
        fields[nlohmann::ordered_json::json_pointer(column.key)] = value_of(column, job);
    }
    jobs.push_back(std::move(fields));
  }
  const nlohmann::ordered_json line = {
      {"region", cache->path},
      {"seconds", cache->jobs.empty() ? 0.0 : cache->jobs.front().seconds},
      {"processes", cache->processes},
      {"used", cache->used},
      {"large", cache->large},
      {"entries", cache->files},
      {"servers", json_of(cache->servers)},
      {"gateway", json_of(cache->gateway)},
      {"jobs", jobs}};
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace cube::cli
