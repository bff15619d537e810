// LeadClaim: a process's claim to lead the node's prefetching. Only one process at a time is the
// leader.
//
// The leader holds one of several robust mutexes. Through this mutex, the kernel reports the
// leader's death. A word in the region's header holds the index of the mutex, the number of the
// lead, and the beat. The beat is a count that the leader increments while its process runs. A
// leader that is stopped (SIGSTOP, a frozen control group, a debugger) keeps its mutex and does not
// beat. After seven checks without a beat, a follower takes another mutex and the next number. The
// previous leader notices the new number at its next beat.
//
// No process compares its times or process ids with those of another process. So time namespaces,
// pid namespaces, a suspended machine, and a clock that jumps do no harm. Checks count only if they
// are at least 250 ms apart. For a follower that was itself stopped, the whole stop counts as one
// check.
//
// Invariants: if two followers see the same word, only one of them gets the lead. If the leader
// beats between a follower's check and the follower's swap, the leader keeps the lead. A leader
// that has lost the lead holds its mutex until give_up(). So the number of mutexes limits how many
// leaders can be stopped at the same time. Thread safety: any thread may call beat(). All other
// functions must be called from one thread.
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

  // Checks the leader, and takes the lead if the lead is free or the leader is stopped. True: this
  // process leads from now on, until beat() returns false or give_up() is called. `now_ns` is
  // base::monotonic_ns().
  bool look(std::uint64_t now_ns);
  // False: this process does not lead, or no longer leads.
  bool beat();
  void give_up();

 private:
  bool take(std::uint32_t lock, std::uint64_t word);

  Region* region_;
  std::optional<RobustLock> lock_;
  // RegionHeader::lead_word without the beat; 0: this process does not lead.
  std::atomic<std::uint64_t> own_{0};
  std::uint64_t seen_ = 0, counted_ns_ = 0;
  // How many checks in a row have found no beat.
  unsigned silent_ = 0;
};

}  // namespace cube::cache
