#include "cache/job_report.h"

#include <nlohmann/json.hpp>

#include "cache/base/clock.h"
#include "cache/base/unique_fd.h"

namespace cube::cache {
namespace {

using base::Counter;

constexpr std::pair<const char*, Counter> k_bypassed[] = {
    {"flags", Counter::bypassed_flags}, {"write", Counter::bypassed_write}, {"kind", Counter::bypassed_kind},
    {"size", Counter::bypassed_size},   {"full", Counter::bypassed_full},   {"busy", Counter::bypassed_busy},
    {"error", Counter::bypassed_error},
};

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string rate_line(const char* label, std::uint64_t requests, std::uint64_t hits) {
  const std::uint64_t misses = requests > hits ? requests - hits : 0;
  return fmt::format("cubeshim: {} request_count:{} hit_count:{} miss_count:{} hit_rate:{:.2f}% miss_rate:{:.2f}%\n", label,
                     requests, hits, misses, 100 * share(hits, requests), 100 * share(misses, requests));
}

// %p becomes the pid.
std::string expand(const std::string& pattern, std::uint32_t pid) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '%' && i + 1 < pattern.size() && pattern[i + 1] == 'p') {
      path += std::to_string(pid);
      ++i;
    } else {
      path += pattern[i];
    }
  }
  return path;
}

void write_out(const base::Config& config, std::uint32_t pid, const std::string& text) {
  int fd = STDERR_FILENO;
  base::UniqueFd file;
  if (config.stats != "stderr") {
    const std::string path = expand(config.stats, pid);
    auto opened = base::open_fd(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0644);
    if (!opened) {
      base::log(base::LogLevel::warn, "CUBESHIM_STATS: cannot write {}: {}", path, strerrordesc_np(opened.error().value));
      return;
    }
    file = std::move(*opened);
    fd = file.get();
  }
  base::sys::write(fd, text.data(), text.size());
}

}  // namespace

std::uint64_t JobTotals::requests() const {
  return totals[Counter::hits_ram] + totals[Counter::misses] + totals[Counter::bypassed_full] + totals[Counter::bypassed_busy] +
         totals[Counter::bypassed_size];
}

std::uint64_t JobTotals::opens() const {
  std::uint64_t sum = hits() + totals[Counter::misses];
  for (const auto& [name, counter] : k_bypassed) sum += totals[counter];
  return sum;
}

JobTotals collect(Region& region, std::uint32_t job) {
  JobTotals result;
  result.totals.add(region.job_row(job).finished);
  for (std::uint32_t i = 0; i < k_process_slots; ++i) {
    const ProcessSlot& slot = region.process_slot(i);
    if (slot.used.load(std::memory_order_acquire) != 0 && slot.job == job) result.totals.add(slot.stats);
  }
  const RegionLayout& layout = region.layout();
  result.ram_capacity = std::uint64_t{layout.segment_bytes} * layout.segment_count;
  result.ram_used = region.header().used_bytes.load(std::memory_order_relaxed);
  result.ram_entries = region.header().records.load(std::memory_order_relaxed);
  return result;
}

std::string report_as_json(const JobTotals& job) {
  const auto n = [&](Counter counter) { return job.totals[counter]; };
  const auto us = [](std::uint64_t ns) { return static_cast<double>(ns) / 1000.0; };
  nlohmann::ordered_json bypassed;
  for (const auto& [name, counter] : k_bypassed) bypassed[name] = n(counter);
  const nlohmann::ordered_json report = {
      {"opens", job.opens()},
      {"hits", {{"ram", n(Counter::hits_ram)}}},
      {"misses", n(Counter::misses)},
      {"bypassed", bypassed},
      {"hit_rate", share(job.hits(), job.requests())},
      {"bytes_served", n(Counter::bytes_served)},
      {"origin",
       {{"opens", n(Counter::origin_opens)},
        {"reads", n(Counter::origin_reads)},
        {"bytes", n(Counter::origin_bytes)},
        {"stats", n(Counter::origin_stats)}}},
      {"stat_hits", n(Counter::stat_hits)},
      {"calls_saved", n(Counter::calls_saved)},
      {"materialized", n(Counter::materialized)},
      {"stale_marked", n(Counter::stale_marked)},
      {"ram", {{"capacity", job.ram_capacity}, {"used", job.ram_used}, {"entries", job.ram_entries}}},
      {"latency_us",
       {{"hit",
         {{"p50", us(base::quantile_ns(job.totals.hit_latency, 0.5))},
          {"p99", us(base::quantile_ns(job.totals.hit_latency, 0.99))}}},
        {"miss",
         {{"p50", us(base::quantile_ns(job.totals.miss_latency, 0.5))},
          {"p99", us(base::quantile_ns(job.totals.miss_latency, 0.99))}}}}},
  };
  return report.dump() + "\n";
}

std::string report_as_text(const JobTotals& job, std::uint64_t last_requests, std::uint64_t last_hits) {
  const std::uint64_t requests = job.requests();
  std::string text =
      rate_line("cycle", requests - std::min(last_requests, requests), job.hits() - std::min(last_hits, job.hits()));
  text += rate_line("sum", requests, job.hits());
  std::string past;
  for (const auto& [name, counter] : k_bypassed) {
    if (const auto n = job.totals[counter]; n != 0) past += fmt::format(" {}:{}", name, n);
  }
  if (!past.empty()) text += fmt::format("cubeshim: bypassed{}\n", past);
  return text;
}

void write_report(Region& region, std::uint32_t job, const base::Config& config, std::uint32_t pid) {
  if (config.stats == "off") return;
  JobRow& row = region.job_row(job);
  const JobTotals totals = collect(region, job);
  const std::uint64_t last_requests = row.reported_requests.exchange(totals.requests(), std::memory_order_relaxed);
  const std::uint64_t last_hits = row.reported_hits.exchange(totals.hits(), std::memory_order_relaxed);
  if (config.stats_format == base::StatsFormat::json) {
    write_out(config, pid, report_as_json(totals));
  } else if (totals.opens() != 0 || config.stats != "stderr") {
    write_out(config, pid, report_as_text(totals, last_requests, last_hits));
  }
}

void write_empty_report(const base::Config& config, std::uint32_t pid) {
  if (config.stats == "off" || config.stats_format != base::StatsFormat::json) return;
  write_out(config, pid, report_as_json({}));
}

bool report_interval_passed(Region& region, std::uint32_t job, std::uint64_t interval_seconds) {
  std::atomic<std::uint64_t>& next = region.job_row(job).next_report_ns;
  const std::uint64_t now = base::coarse_monotonic_ns();
  std::uint64_t due = next.load(std::memory_order_relaxed);
  if (now < due) return false;
  const bool first = due == 0;  // the interval begins with the first open
  return next.compare_exchange_strong(due, now + interval_seconds * 1'000'000'000ULL, std::memory_order_relaxed) && !first;
}

}  // namespace cube::cache
