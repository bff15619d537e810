// Gives process slots to processes, and takes them back from processes that leave or have died,
// with everything that they held: pins, leases, flights, writers, posts. Their counters go to their
// job's row. Thread safety: the caller must hold RegionHeader::lifecycle.
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
  // The claim lasts as long as this mapping.
  base::Mapping life;
};
// The last slot is for a process that serves the others, such as the gateway, which must be able to
// join them.
enum class SlotFor : bool { program, server };
// EUSERS: living processes have all slots. EDQUOT: all job rows are taken. ESTALE: the region has
// lost its name.
base::Result<SlotClaim> claim_process_slot(Region& region, const base::ProcessId& self,
                                           const base::ProcessId& job,
                                           SlotFor use = SlotFor::server);
// Clears what the process has left in its slot; the caller drops `life` next.
void release_process_slot(Region& region, std::uint32_t slot);

// Frees the slots of dead processes: pins, leases, statistics. Returns how many processes other
// than `except` (or k_nobody) are left. If many are left, it checks each of them only once a
// second, unless `thoroughly`, but it always notices if none is left.
std::uint32_t reap_dead_processes(Region& region, std::uint32_t except, bool thoroughly = false);

}  // namespace cube::cache
