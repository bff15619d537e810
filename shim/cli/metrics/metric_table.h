// The families of metrics: their names and, for those of stats.def, their values. The path of a
// figure in stats.def determines the name: origin.bytes becomes cubeshim_origin_bytes_total,
// hits.ram becomes cubeshim_hits_total{tier="ram"}, ram.used becomes
// cubeshim_tier_used_bytes{tier="ram"}. Total opens, hit rates and quantiles are not metrics,
// because Prometheus computes them from other metrics (doc/deploy/alerts.yaml). Thread safety:
// constants.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/report/job_totals.h"
#include "shim/cli/metrics/metrics.h"

namespace cube::cli {

struct MetricRow {
  std::string family, help;
  MetricKind kind = MetricKind::counter;
  std::string label, value;  // the label besides `cache`; empty if there is none
  std::string detail;        // describes this row, if the family has several rows
  // False if the cache has no such tier.
  std::function<bool(const cache::JobTotals&)> is_in;
  std::function<double(const cache::JobTotals&)> value_of;
};

// A row for each figure of stats.def. A figure of tiers has a row for each tier.
const std::vector<MetricRow>& metric_rows();

// The names of families that are not in stats.def.
inline constexpr std::string_view k_cache_up = "cubeshim_cache_up",
                                  k_start_time = "cubeshim_cache_start_time_seconds",
                                  k_processes = "cubeshim_processes", k_jobs = "cubeshim_jobs",
                                  k_index_full = "cubeshim_index_full",
                                  k_ring = "cubeshim_ring_bytes",
                                  k_depth = "cubeshim_prefetch_depth",
                                  k_metadata_memory = "cubeshim_metadata_memory_bytes",
                                  k_hit_seconds = "cubeshim_hit_open_seconds",
                                  k_miss_seconds = "cubeshim_miss_open_seconds",
                                  k_server_up = "cubeshim_cluster_server_up",
                                  k_server_used = "cubeshim_cluster_server_used_bytes",
                                  k_server_capacity = "cubeshim_cluster_server_capacity_bytes",
                                  k_server_entries = "cubeshim_cluster_server_entries",
                                  k_build_info = "cubeshim_exporter_build_info",
                                  k_collect_seconds = "cubeshim_exporter_collect_seconds";

}  // namespace cube::cli
