// Depth decides how many fetches may be in flight, so that prefetching does not slow the programs'
// own fetches. The depth is the lower of two limits. The first limit follows how long programs wait
// for their files. The second bounds the queue at the origin while programs fetch files that are in
// no plan. The caller passes the time and all counts at each tick. Thread safety: one thread.
//
// - *By demand.* If programs' own fetches took little longer in a period than in the best period,
//   the limit doubles (after the first setback, it grows by one); otherwise the limit halves. The
//   depth is one while a program waits for the origin. The exception is a job that waits often: it
//   has outrun the prefetcher, which would never catch up at a depth of one. For such a job, only
//   the latency counts (doc/benchmarks/prefetch.md). The best latency is forgotten slowly, because
//   the best depth changes with the origin's load.
// - *By fetches.* A program's request waits behind all fetches that queue at the origin. A queue
//   raises the latency of the fetches, so this latency is first measured with one fetch in flight.
//   Then the limit grows in each period, first by a factor of two and later by a quarter, until a
//   fetch takes clearly longer. When a fetch does, the limit falls by the same factor, and
//   afterwards grows by one. From time to time the measurement starts again, because an origin's
//   speed and the sizes of files change.
// - *Foreign demand.* A job whose files are prefetched gains most from a fast prefetcher, even
//   while the job waits, because a slower prefetcher would also delay its next file. So the limit
//   by fetches applies only while there is a foreign job. A job is foreign if the leader does not
//   work on its list and the job opens few prefetched files (fewer than an eighth of its own
//   fetches). Planned files that are already cached, or that programs fetch, might belong to a job
//   that has outrun the prefetcher, so these files count against foreign fetches.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "cache/fetch_ahead.h"

namespace cube::prefetch {

class Depth {
 public:
  explicit Depth(unsigned most);

  struct Seen {
    std::uint64_t now_ns = 0;
    unsigned in_flight = 0;  // if below the depth, the depth must not grow
    std::span<const cache::Demand> jobs = {};
    std::optional<std::uint32_t> planned_job = {};  // the job whose list is being fetched
    // The total number of planned files that no longer needed a fetch when they were due.
    std::uint64_t overtaken = 0;
    // The number of fetches that ended since the last tick, and their total time.
    std::uint64_t fetches = 0, ns = 0;
  };
  void tick(const Seen& seen);

  unsigned depth() const;
  // The demand of all jobs at the last tick.
  const cache::Demand& demand() const { return demand_; }

 private:
  struct Period {
    std::uint64_t began_ns = 0, samples = 0;
    double sum_ns = 0;
    unsigned most_in_flight = 0;
  };
  struct Rule {
    double tolerance = 1, forgetting = 1;  // factors applied to the best mean in each period
    // If false, the limit falls by the factor by which the mean has grown.
    bool halves = false;
    unsigned step = 0;  // the growth before the first setback; afterwards it is one
  };
  struct Limit {
    unsigned most = 0, now = most;
    bool was_set_back = false;
    double best_ns = 0;  // mean of a period
    Period period = {};
    // Returns true if the limit fell.
    bool end_period(std::uint64_t now_ns, const Rule& rule);
  };
  struct Job {
    cache::Demand last;
    double fetches = 0, ahead = 0;  // of the last ticks
  };

  void limit_by_demand(const Seen& seen);
  bool is_demand_foreign(const Seen& seen);
  void limit_by_fetches(const Seen& seen, bool is_foreign);
  // Waits until the excess fetches have ended.
  void drain(const Seen& seen);

  Limit by_demand_, by_fetches_;
  cache::Demand demand_;
  double share_waiting_ = 0;  // of the last ticks
  std::map<std::uint32_t, Job> jobs_;
  std::uint64_t overtaken_ = 0;
  double sum_overtaken_ = 0;       // of the last ticks
  std::uint64_t foreign_ns_ = 0;   // the last time there was a foreign job
  std::uint64_t measured_ns_ = 0;  // when the last measurement began; 0: no limit by fetches
                                   // applies
  // More fetches are in flight than allowed, so their latency does not show whether the limit is
  // right.
  bool is_draining_ = false;
};

}  // namespace cube::prefetch
