// The table of processes that are attached to the region: their identities, whether they live, and
// which segments they pin. A process holds its slot by a life lock (life_lock.h). The kernel drops
// this lock together with the process's memory. process_reaper.h claims slots and frees those of
// dead processes. Invariant: a living process never counts as dead. A death may be noticed late.
// Thread-safe, also across processes; callers of report_is_due must hold RegionHeader::lifecycle.
#pragma once

#include <cstdint>

#include "cache/base/process/process_id.h"
#include "cache/region/layout.h"

namespace cube::cache {

class Region;

inline constexpr std::uint32_t k_nobody = k_most_process_slots;

// All slots that have ever been claimed are below this number.
std::uint32_t slots_reached(const Region& region);
// Whether any process has a pin on this segment. seq_cst: a process that pins first increments its
// counter, then checks the segment.
bool is_segment_pinned(const Region& region, std::uint32_t segment);

// These functions note which programs have attached. The parent of such a program reads the note
// when it has reaped the program. If another program overwrites the note, the first program counts
// as not attached. A program that is about to execute another program also counts as not attached.
void note_attached(Region& region, const base::ProcessId& self);
void note_exec(Region& region, const base::ProcessId& self);
// Whether the child that `self` has just reaped had attached. Removes the note.
bool take_attached(Region& region, const base::ProcessId& self, std::uint32_t child);

bool process_is_alive(Region& region, std::uint32_t slot);

// Identifies the process that has this slot, in 24 bits that are never 0: the number of the slot,
// plus one, and the low bits of the slot's generation, because another process may have the slot
// when the word is checked.
std::uint32_t process_word(const Region& region, std::uint32_t slot);
// The slot in a process_word. It can be too large if the word does not come from process_word().
constexpr std::uint32_t slot_of_word(std::uint32_t word) { return (word & 0xfff) - 1; }
// Whether the process of this word is alive.
bool process_of_word_is_alive(Region& region, std::uint32_t word);

// Whether any job's report is still due: the job's first process is alive, and is not `except`.
bool report_is_due(Region& region, const base::ProcessId& except);

}  // namespace cube::cache
