// Do programs wait for files that nobody has told the prefetcher of? For these the prefetcher has
// to give way. A job whose files it fetches ahead is served best by a quick prefetcher, also while
// the job waits: the next file of the same job waits behind the one that is fetched slowly.
//
// A job counts as foreign while it opens few files that were fetched ahead (an eighth of its own
// fetches). Files of the plan that are there already, or that programs fetch, may be those of a job
// that has outrun the prefetcher, and count against foreign fetches. Pure: counts are told to it.
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>

namespace cube::prefetch {

class ForeignDemand {
 public:
  struct Job {
    std::uint32_t number = 0;
    std::uint64_t fetches = 0;  // by its processes that live, so far; of files that were not there
    std::uint64_t ahead = 0;  // its first opens of files that were fetched ahead, also if it had to
                              // wait for that, so far
    bool is_planned = false;  // it has a list that is being fetched
  };
  // Called at each tick. `overtaken`: files of the plan that need not be fetched any more when
  // their turn comes, so far.
  bool is_there(std::span<const Job> jobs, std::uint64_t overtaken);

 private:
  // Counts of the last ticks.
  struct Recent {
    std::uint64_t fetches = 0, ahead = 0;  // as told last
    double sum_fetches = 0, sum_ahead = 0;
    bool is_alive = false;
  };
  static constexpr double k_weight = 1.0 / 16, k_share = 1.0 / 8, k_least = 0.1;

  std::map<std::uint32_t, Recent> jobs_;
  std::uint64_t overtaken_ = 0;
  double sum_overtaken_ = 0;
};

}  // namespace cube::prefetch
