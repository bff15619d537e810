// LeadClaim: a process's claim to lead the node's prefetching, of which one process at a time has
// the lead.
//
// The leader holds one of some robust mutexes, by which the kernel tells of its death. A word in
// the region's header says which mutex, the number of the lead, and a count that the leader raises
// while its process runs: the beat. A leader that is stopped (SIGSTOP, a frozen control group, a
// debugger) keeps its mutex and does not beat. After seven looks without a beat a follower takes
// another mutex and the next number, and the former leader finds that by its next beat.
//
// No time and no process id is compared, so namespaces of both, a suspended machine and a clock
// that leaps do no harm. Only looks count that are 250 ms apart, and a follower that was stopped
// itself has looked only once meanwhile.
//
// Invariants: if two followers see the same word, one of them gets the lead. A beat between a
// follower's look and its swap keeps the lead. A leader that has lost it holds its mutex until
// give_up(), so as many leaders can be stopped at once as there are mutexes. Thread safety: beat()
// by any thread, the rest by one.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "cache/region/life/robust_lock.h"
#include "cache/region/region.h"

namespace cube::cache {

class LeadClaim {
 public:
  static constexpr std::uint64_t k_between_looks_ns = 250'000'000;
  static constexpr unsigned k_silent_looks = 7;

  explicit LeadClaim(Region& region) : region_(&region) {}

  // True: we lead from now on, until beat() says otherwise or give_up(). Now is
  // base::monotonic_ns().
  bool look(std::uint64_t now_ns);
  // False: we do not lead (any more).
  bool beat();
  void give_up();

 private:
  bool take(std::uint32_t lock, std::uint64_t word);

  Region* region_;
  std::optional<RobustLock> lock_;
  std::atomic<std::uint64_t> own_{0};  // the word without its beat; 0: we do not lead
  std::uint64_t seen_ = 0, counted_ns_ = 0;
  unsigned silent_ = 0;  // looks
};

}  // namespace cube::cache
