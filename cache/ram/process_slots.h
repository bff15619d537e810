// Who is attached to the region. A slot is claimed by a process and holds a robust mutex that one of its threads keeps
// locked for life: the kernel unlocks it when the process dies, whatever the pid namespace of those who look.
// When that thread ends before its process, it unlocks in order (a TLS destructor) and the next thread of the process
// that calls keep_alive takes over; in between the slot is judged by pid and start time.
// Invariant: a living process is never taken for dead. A dead one may be noticed late.
// Thread safety: claim, release and reap_dead want RegionHeader::lifecycle held; keep_alive and is_alive do not.
#pragma once

#include <cstdint>

#include "cache/base/process_id.h"
#include "cache/base/result.h"

namespace cube::cache {

class Region;

struct Claim {
  std::uint32_t slot = 0, job = 0;
};
// EUSERS: all slots are taken by living processes.
base::Result<Claim> claim_process_slot(Region& region, const base::ProcessId& self, const base::ProcessId& job);
void release_process_slot(Region& region, std::uint32_t slot);

// Frees the slots of the dead: pins, leases, statistics. Returns how many processes but `except` are left.
std::uint32_t reap_dead_processes(Region& region, std::uint32_t except);

bool process_is_alive(Region& region, std::uint32_t slot);

// Is the first process of a job, other than `except`, alive, so that its report is still to come?
bool report_is_due(Region& region, const base::ProcessId& except);

// Makes sure that some thread of this process holds the slot's mutex. Cheap when one does.
void keep_alive(Region& region);
// In a forked child: the parent's claim is not ours.
void forget_claim_after_fork();

}  // namespace cube::cache
