// Gives process slots to processes, and takes them back from those that leave or have died, with
// all that they held: pins, leases, flights, writers, posts. Their counters go to their job's row.
// Thread safety: all of it wants RegionHeader::lifecycle held.
#pragma once

#include <cstdint>

#include "cache/base/memory/mapping.h"
#include "cache/base/process/process_id.h"
#include "cache/base/result.h"
#include "cache/region/life/process_slots.h"

namespace cube::cache {

struct SlotClaim {
  std::uint32_t slot = 0, job = 0;
  bool is_new_job = false;
  base::Mapping life;  // the claim lasts as long as this
};
// EUSERS: all slots are taken by living processes; EDQUOT: all rows of jobs are; ESTALE: the region
// has lost its name.
base::Result<SlotClaim> claim_process_slot(Region& region, const base::ProcessId& self,
                                           const base::ProcessId& job);
// Clears what the process has left in its slot; `life` goes next.
void release_process_slot(Region& region, std::uint32_t slot);

// Frees the slots of the dead: pins, leases, statistics. Returns how many processes but `except`
// (or k_nobody) are left. If they are many, it looks at each of them once a second only, unless
// `thoroughly`. It sees in any case whether any is left.
std::uint32_t reap_dead_processes(Region& region, std::uint32_t except, bool thoroughly = false);

}  // namespace cube::cache
