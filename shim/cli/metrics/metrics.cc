#include "shim/cli/metrics/metrics.h"

#include <fmt/core.h>

#include <algorithm>
#include <bitset>
#include <cerrno>
#include <memory>
#include <set>
#include <string_view>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/region/life/life_lock.h"
#include "cache/region/life/process_slots.h"
#include "cache/region/region.h"
#include "shim/cli/bus_guard.h"
#include "shim/cli/cache_names.h"
#include "shim/cli/metrics/metric_table.h"
#include "shim/cli/top/seen_servers.h"

namespace cube::cli {
namespace {

using base::Histogram;
using Labels = std::vector<std::pair<std::string, std::string>>;
using Counts = std::array<std::uint64_t, Histogram::k_buckets>;

// The bounds of the reported buckets are powers of two, from 256 ns to 17 s.
constexpr unsigned k_first_bound = 8, k_last_bound = 34;

MetricFamily& family_of(std::vector<MetricFamily>& families, std::string_view name) {
  return *std::find_if(families.begin(), families.end(),
                       [&](const auto& family) { return family.name == name; });
}

void add(std::vector<MetricFamily>& families, std::string_view name, Labels labels, double value) {
  family_of(families, name).samples.push_back({std::move(labels), value, {}, 0, 0});
}

void add(std::vector<MetricFamily>& families, std::string_view name, Labels labels,
         std::uint64_t value) {
  add(families, name, std::move(labels), static_cast<double>(value));
}

// A bucket ends just below the next power of two.
std::size_t bucket_below(unsigned bound) { return (bound - 2) * std::size_t{4} + 3; }

void add_histogram(std::vector<MetricFamily>& families, std::string_view name, Labels labels,
                   const Counts& counts) {
  MetricSample sample;
  sample.labels = std::move(labels);
  unsigned bound = k_first_bound;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    sample.count += counts[i];
    sample.sum += static_cast<double>(counts[i]) * Histogram::middle_of(i) / 1e9;
    if (bound <= k_last_bound && i == bucket_below(bound))
      sample.buckets.push_back(
          {static_cast<double>(std::uint64_t{1} << bound++) / 1e9, sample.count});
  }
  family_of(families, name).samples.push_back(std::move(sample));
}

template <typename Array>
void raise_to(Array& now, const Array& before) {
  for (std::size_t i = 0; i < now.size(); ++i) now[i] = std::max(now[i], before[i]);
}

void raise_to(base::Totals& now, const base::Totals& before) {
  raise_to(now.counters, before.counters);
  raise_to(now.hit_latency, before.hit_latency);
  raise_to(now.miss_latency, before.miss_latency);
}

struct Users {
  std::uint64_t processes = 0, jobs = 0;
};
Users users_of(const cache::Region& region) {
  Users users;
  std::bitset<cache::k_most_job_rows> jobs;
  const cache::LifeProbe probe(region.reopen(O_RDONLY));
  for (std::uint32_t i = 0; i < cache::slots_reached(region); ++i) {
    const cache::ProcessSlot& slot = region.process_slot(i);
    if (slot.used.load(std::memory_order_acquire) == 0 || !probe.is_held(i)) continue;
    ++users.processes;
    if (const std::uint32_t job = slot.job; job < jobs.size()) jobs.set(job);
  }
  users.jobs = jobs.count();
  return users;
}

// Makes a text safe as the value of a label. Another process wrote the text into the region.
std::string label_text(const std::string& text) {
  std::string result;
  for (const char c : text)
    result += c > ' ' && c <= '~' ? std::string(1, c)
                                  : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return result;
}

void add_servers(std::vector<MetricFamily>& families, const std::string& cache,
                 const cache::Region& region) {
  std::set<std::string> known;
  for (const SeenServer& server : servers_of(region)) {
    const Labels labels = {{"cache", cache}, {"server", label_text(server.name)}};
    if (!known.insert(labels.back().second).second) continue;
    add(families, k_server_up, labels,
        server.state == "answers" || server.state == "full" ? 1.0 : 0.0);
    add(families, k_server_used, labels, server.used);
    add(families, k_server_capacity, labels, server.capacity);
    add(families, k_server_entries, labels, server.entries);
  }
}

void add_totals(std::vector<MetricFamily>& families, const std::string& cache,
                const cache::JobTotals& job) {
  for (const MetricRow& row : metric_rows()) {
    if (!row.is_in(job)) continue;
    Labels labels = {{"cache", cache}};
    if (!row.label.empty()) labels.emplace_back(row.label, row.value);
    add(families, row.family, std::move(labels), row.value_of(job));
  }
  add_histogram(families, k_hit_seconds, {{"cache", cache}}, job.totals.hit_latency);
  add_histogram(families, k_miss_seconds, {{"cache", cache}}, job.totals.miss_latency);
}

void add_region(std::vector<MetricFamily>& families, const std::string& cache,
                const cache::Region& region) {
  const cache::RegionHeader& header = region.header();
  const Labels labels = {{"cache", cache}};
  const Users users = users_of(region);
  add(families, k_start_time, labels, static_cast<double>(header.created_ns) / 1e9);
  add(families, k_processes, labels, users.processes);
  add(families, k_jobs, labels, users.jobs);
  add(families, k_index_full, labels,
      header.index_full.load() == cache::RegionHeader::k_for_good ? 1.0 : 0.0);
  add(families, k_metadata_memory, labels, header.metadata_bytes.load());
  add(families, k_ring, labels,
      std::uint64_t{header.ring_segments.load()} * region.layout().segment_bytes);
  // A killed leader leaves its last depth in the region.
  add(families, k_depth, labels,
      users.processes == 0 ? std::uint64_t{0} : header.lead_depth.load());
  add_servers(families, cache, region);
}

}  // namespace

void CacheMetrics::collect_cache(const std::string& name, std::vector<MetricFamily>& families,
                                 std::vector<std::string>& troubles) {
  const BusGuard guard;
  cache::RegionOptions options{.directory = directory_, .name = name, .job = {}};
  std::string why;
  const auto found = cache::Region::look(options, why);
  const std::unique_ptr<cache::Region> region(found ? *found : nullptr);
  if (region == nullptr) {
    const int error = found.error().value;
    const bool is_wanted = std::find(names_.begin(), names_.end(), name) != names_.end();
    // The cache was removed after the directory was read, or a new cache is being made under this
    // name.
    if ((error == ENOENT || error == EEXIST) && !is_wanted) return;
    add(families, k_cache_up, {{"cache", name}}, 0.0);
    if (error == ENOENT || error == EEXIST) return;
    troubles.push_back(why.empty() ? fmt::format("{}: {}", name, base::text_of_error(error)) : why);
    return;
  }
  Seen& seen = seen_[name];
  const std::uint64_t created_ns = region->header().created_ns;
  cache::JobTotals job = cache::collect_all(*region);
  if (seen.created_ns != created_ns) {
    // At the first sample of a cache, takes a second sample. A sample may briefly miss some
    // counters, but two samples are unlikely to miss the same counters.
    seen = {created_ns, looks_, job.totals};
    job = cache::collect_all(*region);
  }
  raise_to(job.totals, seen.totals);
  std::vector<MetricFamily> mine = metric_families();
  add_totals(mine, name, job);
  add_region(mine, name, *region);
  if (guard.has_missed()) {
    add(families, k_cache_up, {{"cache", name}}, 0.0);
    troubles.push_back(fmt::format("{} was cut short while it was read", region->path()));
    return;
  }
  seen.totals = job.totals;
  seen.look = looks_;
  add(families, k_cache_up, {{"cache", name}}, 1.0);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    auto& samples = families[i].samples;
    std::move(mine[i].samples.begin(), mine[i].samples.end(), std::back_inserter(samples));
  }
}

std::vector<MetricFamily> CacheMetrics::collect(std::vector<std::string>& troubles) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t began_ns = base::monotonic_ns();
  ++looks_;
  std::vector<MetricFamily> families = metric_families();
  for (const std::string& name : names_.empty() ? names_of_caches(directory_) : names_)
    collect_cache(name, families, troubles);
  std::erase_if(seen_, [&](const auto& one) { return one.second.look != looks_; });
  add(families, k_build_info, {{"version", CUBESHIM_VERSION}}, 1.0);
  add(families, k_collect_seconds, {}, static_cast<double>(base::monotonic_ns() - began_ns) / 1e9);
  std::erase_if(families, [](const auto& family) { return family.samples.empty(); });
  return families;
}

std::vector<std::string> CacheMetrics::absent() const {
  std::vector<std::string> names;
  const std::vector<std::string> there = names_of_caches(directory_);
  std::copy_if(names_.begin(), names_.end(), std::back_inserter(names), [&](const auto& name) {
    return std::find(there.begin(), there.end(), name) == there.end();
  });
  return names;
}

}  // namespace cube::cli
