// Detects whether programs wait for files that the prefetcher was not told about; for these the
// prefetcher must give way. A job whose files are prefetched is served best by a fast prefetcher,
// even while the job waits: its next file would wait behind the one that is fetched slowly.
//
// A job counts as foreign while it opens few prefetched files (an eighth of its own fetches).
// Planned files that are already there, or that programs fetch, may belong to a job that has outrun
// the prefetcher, so they count against foreign fetches. Pure: the caller passes counts. Thread
// safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>

namespace cube::prefetch {

class ForeignDemand {
 public:
  struct Job {
    std::uint32_t number = 0;
    std::uint64_t fetches = 0;  // total fetches by its live processes, of files that were not there
    // Total of its first opens of prefetched files, including those that had to wait for the fetch.
    std::uint64_t ahead = 0;
    bool is_planned = false;  // a list of it is being fetched
  };
  // Called at each tick. `overtaken`: the total of planned files that no longer needed a fetch when
  // they were due.
  bool is_there(std::span<const Job> jobs, std::uint64_t overtaken);

 private:
  // Decaying counts of the last ticks.
  struct Recent {
    std::uint64_t fetches = 0, ahead = 0;  // as last passed
    double sum_fetches = 0, sum_ahead = 0;
    bool is_alive = false;
  };
  static constexpr double k_weight = 1.0 / 16, k_share = 1.0 / 8, k_least = 0.1;

  std::map<std::uint32_t, Recent> jobs_;
  std::uint64_t overtaken_ = 0;
  double sum_overtaken_ = 0;
};

}  // namespace cube::prefetch
