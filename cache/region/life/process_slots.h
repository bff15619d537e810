// The table of processes that are attached to the region: their identity, whether they live, and
// what they pin. A process holds its slot by a life lock (life_lock.h), which the kernel drops with
// the process's memory. process_reaper.h claims slots and frees those of dead processes. Invariant:
// a living process never counts as dead; a death may be noticed late. Thread-safe, across processes
// too; report_is_due needs RegionHeader::lifecycle held.
#pragma once

#include <cstdint>

#include "cache/base/process/process_id.h"
#include "cache/region/layout.h"

namespace cube::cache {

class Region;

inline constexpr std::uint32_t k_nobody = k_most_process_slots;

// No slot at or above this one has ever been claimed.
std::uint32_t slots_reached(const Region& region);
// True if any process has a pin on this segment. seq_cst: the pinner increments its counter, then
// checks the segment.
bool is_segment_pinned(const Region& region, std::uint32_t segment);

// These functions note which programs have attached, for the processes that reap them. Another
// program's note may overwrite a row; the child then counts as one that has not attached. A program
// that is about to become another (exec) counts as not attached, too.
void note_attached(Region& region, const base::ProcessId& self);
void note_exec(Region& region, const base::ProcessId& self);
// True if the child that `self` has just reaped had attached. Forgets the note.
bool take_attached(Region& region, const base::ProcessId& self, std::uint32_t child);

bool process_is_alive(Region& region, std::uint32_t slot);

// True if the first process of any job other than `except` is alive, so that its report is still
// due.
bool report_is_due(Region& region, const base::ProcessId& except);

}  // namespace cube::cache
