// The processes that are attached to the region. A process claims a slot and keeps its life lock (life_lock.h), which the kernel
// lets go when the memory of the process goes. Invariant: a living process is never taken for dead. A dead one may be noticed
// late. Thread safety: claim, release and reap_dead want RegionHeader::lifecycle held; process_is_alive does not.
#pragma once

#include <cstdint>

#include "cache/base/mapping.h"
#include "cache/base/process_id.h"
#include "cache/base/result.h"
#include "cache/region/layout.h"

namespace cube::cache {

class Region;

inline constexpr std::uint32_t k_nobody = k_most_process_slots;

struct Claim {
  std::uint32_t slot = 0, job = 0;
  bool is_new_job = false;
  base::Mapping life;  // the claim lasts as long as this
};
// EUSERS: all slots are taken by living processes; EDQUOT: all rows of jobs are; ESTALE: the region has lost its name.
base::Result<Claim> claim_process_slot(Region& region, const base::ProcessId& self, const base::ProcessId& job);
// Clears what the process has left in its slot; `life` goes next.
void release_process_slot(Region& region, std::uint32_t slot);

// Frees the slots of the dead: pins, leases, statistics. Returns how many processes but `except` (or
// k_nobody) are left. If they are many, it looks at each of them once a second only, unless `thoroughly`. It sees in any case
// whether any is left.
std::uint32_t reap_dead_processes(Region& region, std::uint32_t except, bool thoroughly = false);

// No slot from this one on has ever been claimed.
std::uint32_t slots_reached(const Region& region);
// Has any process a claim on this segment? seq_cst: a claimer raises its count first and looks at the segment then.
bool is_segment_pinned(const Region& region, std::uint32_t segment);

// Which programs have attached, for those who reap them. A row may be lost to another program's; then the child counts as one
// that has not. A program that is about to become another (exec) has not attached either.
void note_exec(Region& region, const base::ProcessId& self);
// Had the child attached that `self` has just reaped? Forgets it.
bool take_attached(Region& region, const base::ProcessId& self, std::uint32_t child);

bool process_is_alive(Region& region, std::uint32_t slot);

// Is the first process of a job, other than `except`, alive, so that its report is still to come?
bool report_is_due(Region& region, const base::ProcessId& except);

}  // namespace cube::cache
