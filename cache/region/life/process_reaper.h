// Gives process slots to processes, and takes the slots back from processes that leave or have
// died. Everything that such a process held (pins, leases, flights, writers, posts) is freed, and
// its counters are added to the job's row. Thread safety: the caller must hold
// RegionHeader::lifecycle.
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
// The last slot is reserved for a `server`: a process that serves the others, such as the gateway.
// A server must be able to join even if programs have all other slots.
enum class SlotFor : bool { program, server };
// EUSERS: living processes have all slots. EDQUOT: all job rows are in use. ESTALE: the region has
// lost its name.
base::Result<SlotClaim> claim_process_slot(Region& region, const base::ProcessId& self,
                                           const base::ProcessId& job,
                                           SlotFor use = SlotFor::server);
// Clears everything that the process has left in its slot. The caller must drop SlotClaim::life
// next.
void release_process_slot(Region& region, std::uint32_t slot);

// Frees the slots of dead processes, and everything that these processes held. Returns how many
// processes are left, not counting the process of the slot `except` (k_nobody: counts all
// processes). If there are many processes and `thoroughly` is false, the function checks each
// process only once a second, but always notices if no process is left.
std::uint32_t reap_dead_processes(Region& region, std::uint32_t except, bool thoroughly = false);

}  // namespace cube::cache
