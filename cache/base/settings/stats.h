// Counters and latency histograms of one process, laid out for shared memory: only atomics, no
// pointers, all zero when new. stats.def defines the counters. Thread safety: every member may be
// used from any thread and signal handler. The memory order is relaxed, because no other data
// depends on the members.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace cube::base {

enum class Counter : unsigned {
#define CUBE_COUNTER(name, place, unit, help) name,
#include "cache/base/settings/stats.def"
  k_count
};
inline constexpr std::size_t k_counters = static_cast<std::size_t>(Counter::k_count);

// Durations in nanoseconds, in four buckets per power of two, so that a quantile is accurate to
// about 12 %.
struct Histogram {
  static constexpr std::size_t k_buckets = 40 * 4;
  std::array<std::atomic<std::uint32_t>, k_buckets> counts;

  static std::size_t bucket_of(std::uint64_t ns) {
    if (ns < 4) return static_cast<std::size_t>(ns);
    const unsigned log = static_cast<unsigned>(std::bit_width(ns)) - 1;
    const std::size_t bucket = (log - 1) * 4 + ((ns >> (log - 2)) & 3);
    return bucket < k_buckets ? bucket : k_buckets - 1;
  }
  static std::uint64_t upper_bound_of(std::size_t bucket) {
    if (bucket < 4) return bucket + 1;
    const std::size_t log = bucket / 4 + 1;
    return (4ULL + bucket % 4 + 1) << (log - 2);
  }
  static std::uint64_t lower_bound_of(std::size_t bucket) {
    return bucket == 0 ? 0 : upper_bound_of(bucket - 1);
  }
  static double middle_of(std::size_t bucket) {
    return static_cast<double>(lower_bound_of(bucket) + upper_bound_of(bucket)) / 2;
  }
  void add(std::uint64_t ns) { counts[bucket_of(ns)].fetch_add(1, std::memory_order_relaxed); }
};

struct Stats {
  std::array<std::atomic<std::uint64_t>, k_counters> counters;
  Histogram hit_latency;   // durations of opens that are hits; sampled
  Histogram miss_latency;  // durations of opens that fetch

  void count(Counter counter, std::uint64_t n = 1) {
    counters[static_cast<std::size_t>(counter)].fetch_add(n, std::memory_order_relaxed);
  }
};

// The sum of several Stats, as plain numbers.
struct Totals {
  std::array<std::uint64_t, k_counters> counters{};
  std::array<std::uint64_t, Histogram::k_buckets> hit_latency{};
  std::array<std::uint64_t, Histogram::k_buckets> miss_latency{};

  std::uint64_t operator[](Counter counter) const {
    return counters[static_cast<std::size_t>(counter)];
  }
  void add(const Stats& stats) {
    for (std::size_t i = 0; i < k_counters; ++i)
      counters[i] += stats.counters[i].load(std::memory_order_relaxed);
    for (std::size_t i = 0; i < Histogram::k_buckets; ++i) {
      hit_latency[i] += stats.hit_latency.counts[i].load(std::memory_order_relaxed);
      miss_latency[i] += stats.miss_latency.counts[i].load(std::memory_order_relaxed);
    }
  }
};

inline std::uint64_t count_of(const std::array<std::uint64_t, Histogram::k_buckets>& counts) {
  std::uint64_t total = 0;
  for (const auto n : counts) total += n;
  return total;
}

// The mean in nanoseconds, computed from the middles of the buckets. 0: there are no entries.
inline double mean_ns(const std::array<std::uint64_t, Histogram::k_buckets>& counts) {
  const std::uint64_t total = count_of(counts);
  double sum = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    sum += static_cast<double>(counts[i]) * Histogram::middle_of(i);
  }
  return total == 0 ? 0 : sum / static_cast<double>(total);
}

// The quantile `q` of the entries in nanoseconds. 0: there are no entries.
inline std::uint64_t quantile_ns(const std::array<std::uint64_t, Histogram::k_buckets>& counts,
                                 double q) {
  const std::uint64_t total = count_of(counts);
  if (total == 0) return 0;
  const auto wanted = static_cast<std::uint64_t>(q * static_cast<double>(total - 1)) + 1;
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    seen += counts[i];
    if (seen >= wanted) return Histogram::upper_bound_of(i);
  }
  return 0;
}

}  // namespace cube::base
