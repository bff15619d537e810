#include "cache/report/job_totals.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "cache/base/clock.h"
#include "cache/region/lanes.h"
#include "cache/region/large/chunks.h"
#include "cache/region/life/process_slots.h"
#include "cache/region/unserved_paths.h"
#include "cache/report/figures.h"

namespace cube::cache {

using base::Counter;

JobTotals JobTotals::since(const JobTotals& before) const {
  const auto subtract = [](auto& now, const auto& earlier) {
    for (std::size_t i = 0; i < now.size(); ++i) now[i] -= std::min(now[i], earlier[i]);
  };
  JobTotals rise = *this;
  subtract(rise.totals.counters, before.totals.counters);
  subtract(rise.totals.hit_latency, before.totals.hit_latency);
  subtract(rise.totals.miss_latency, before.totals.miss_latency);
  rise.milliseconds -= std::min(rise.milliseconds, before.milliseconds);
  return rise;
}

std::uint64_t JobTotals::hits() const {
  std::uint64_t sum = totals[Counter::hits_ram];
  for (const base::TierKind& kind : base::k_tier_kinds) sum += totals[kind.hits];
  return sum;
}

std::uint64_t JobTotals::opens() const {
  return hits() + totals[Counter::misses] + totals[Counter::large_opens] + bypassed();
}

std::uint64_t JobTotals::bypassed() const {
  std::uint64_t sum = 0;
  for (const Bypassed& bypassed : k_bypassed) sum += totals[bypassed.counter];
  return sum;
}

std::uint64_t JobTotals::metadata_answered() const {
  return totals[Counter::metadata_listed] + totals[Counter::metadata_stats] +
         totals[Counter::metadata_negative];
}

std::uint64_t JobTotals::requests() const {
  std::uint64_t sum = hits() + totals[Counter::misses];
  for (const Bypassed& bypassed : k_bypassed)
    sum += bypassed.is_request ? totals[bypassed.counter] : 0;
  return sum;
}

double JobTotals::hit_rate() const {
  const std::uint64_t all = requests();
  return all == 0 ? 0.0 : static_cast<double>(hits()) / static_cast<double>(all);
}

const char* JobTotals::name_of_origin() const {
  const bool has_asked_store = totals[Counter::bucket_gets] + totals[Counter::bucket_lists] +
                                   totals[Counter::bucket_misses] !=
                               0;
  if (!has_asked_store) return "mount";
  // An open of a packed file may be a miss, but is never an open at the origin.
  const bool has_asked_mount = totals[Counter::origin_opens] != 0 ||
                               totals[Counter::misses] > totals[Counter::bucket_misses];
  return has_asked_mount ? "origin" : "object store";
}

std::optional<double> JobTotals::ns_of_miss() const {
  if (timed_misses() == 0) return std::nullopt;
  const std::uint64_t at_most = base::quantile_ns(totals.miss_latency, 0.25);
  return static_cast<double>(
      base::Histogram::lower_bound_of(base::Histogram::bucket_of(at_most - 1)));
}

std::optional<JobTotals::Saved> JobTotals::saved() const {
  // With fewer fetches, the lower quartile would depend on only a few files. On a busy machine, all
  // of these may have been delayed.
  constexpr std::uint64_t k_enough_fetches = 32;
  const auto miss = ns_of_miss();
  if (!miss || timed_misses() < k_enough_fetches) return std::nullopt;
  // Only files on this machine are fetched in less time. The kernel may have had such a file in
  // memory, and would probably still have it at the next open.
  constexpr double k_local_ns = 100'000;
  std::uint64_t first = totals[Counter::prefetch_early];
  for (const base::TierKind& kind : base::k_tier_kinds) first += totals[kind.hits];
  const std::uint64_t at_origin = totals[Counter::locked] + totals[Counter::materialized];
  const std::uint64_t whole_hits = hits() - std::min(hits(), at_origin);
  first = std::min(first, whole_hits);
  const auto fetched = static_cast<double>(timed_misses());
  const double waited =
      static_cast<double>(hit_ns()) + static_cast<double>(totals[Counter::miss_ns]);
  const auto less_waited = [&](double opens) {
    return std::max(0.0, (opens + fetched) * *miss - waited);
  };
  if (*miss < k_local_ns) return Saved{0, 0};
  return Saved{less_waited(static_cast<double>(first)),
               less_waited(static_cast<double>(whole_hits))};
}

std::uint64_t JobTotals::hit_ns() const {
  const double others = base::mean_ns(totals.hit_latency) * static_cast<double>(hits());
  return totals[Counter::slow_hit_ns] + static_cast<std::uint64_t>(others);
}

std::optional<double> JobTotals::ns_of_hit() const {
  const bool is_measured =
      totals[Counter::slow_hit_ns] != 0 || base::count_of(totals.hit_latency) != 0;
  if (!is_measured || hits() == 0) return std::nullopt;
  return static_cast<double>(hit_ns()) / static_cast<double>(hits());
}

namespace {

// Sets the figures that all jobs share.
void note_region(const Region& region, JobTotals& result) {
  const RegionLayout& layout = region.layout();
  result.ram_capacity = std::uint64_t{layout.segment_bytes} * layout.segment_count;
  result.ram_used = region.header().used_bytes.load(std::memory_order_relaxed);
  result.ram_entries = region.header().records.load(std::memory_order_relaxed);
  const RegionHeader& header = region.header();
  result.is_index_full =
      header.index_full.load(std::memory_order_relaxed) == RegionHeader::k_for_good;
  for (std::size_t i = 0; i < base::k_tiers; ++i) {
    const TierRow& tier = header.tiers[i];
    result.tiers[i] = {.capacity = tier.capacity.load(std::memory_order_relaxed),
                       .used = tier.used.load(std::memory_order_relaxed),
                       .entries = tier.entries.load(std::memory_order_relaxed),
                       .unwritten = tier.unwritten.load(std::memory_order_relaxed),
                       .is_there = tier.is_there.load(std::memory_order_relaxed) != 0};
  }
  for (std::uint32_t i = 0; i < layout.segment_count; ++i)
    result.unread += region.segment_row(i).unread.load(std::memory_order_relaxed);
  const ChunkFigures chunks = figures_of_chunks(region);
  result.chunk_bytes = chunks.bytes;
  result.chunk_unread = chunks.unread;
}

}  // namespace

JobTotals collect(Region& region, std::uint32_t job) {
  JobTotals result;
  result.totals.add(region.job_row(job).finished);
  for (std::uint32_t i = 0; i < slots_reached(region); ++i) {
    const ProcessSlot& slot = region.process_slot(i);
    if (slot.used.load(std::memory_order_acquire) != 0 && slot.job == job)
      add_stats_of(region, i, result.totals);
  }
  note_region(region, result);
  const std::uint64_t now = base::boot_ns(), began = region.job_row(job).started_ns;
  result.milliseconds = began == 0 || now < began ? 0 : (now - began) / 1'000'000;
  const JobRow& row = region.job_row(job);
  // Characters that cannot be printed are replaced, because another process has written the text,
  // and the report may be shown on a terminal.
  const auto is_printed = [](char c) { return c >= ' ' && c <= '~'; };
  copy_noted_path(row.misspelled, result.misspelled);
  if (const UnservedRow* const unserved = unserved_of(region, job); unserved != nullptr) {
    for (std::size_t i = 0; i < k_unserved_reasons; ++i)
      copy_noted_path(unserved->first[i], result.unserved[i]);
  }
  for (std::uint32_t i = 0; i < k_call_counts; ++i) {
    const CallCount& from = row.materialized_by[i];
    const std::uint64_t name[2] = {from.name[0].load(std::memory_order_relaxed),
                                   from.name[1].load(std::memory_order_relaxed)};
    std::memcpy(result.materialized_by[i].name, name, sizeof name);
    for (char& c : result.materialized_by[i].name) c = c == '\0' || is_printed(c) ? c : '?';
    result.materialized_by[i].count = from.count.load(std::memory_order_relaxed);
  }
  return result;
}

JobTotals collect_all(const Region& region) {
  JobTotals result;
  // Counters move from a process to its job, and from a job to the forgotten jobs. This function
  // reads in the opposite order, so that no counter is counted twice.
  result.totals.add(region.forgotten_jobs());
  std::atomic_thread_fence(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < region.layout().job_rows; ++i) {
    const JobRow& row = region.job_row(i);
    if (row.leader.pid != 0) result.totals.add(row.finished);
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < slots_reached(region); ++i) add_stats_of(region, i, result.totals);
  note_region(region, result);
  return result;
}

}  // namespace cube::cache
