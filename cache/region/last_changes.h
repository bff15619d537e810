// The last changes that processes of the node have reported, by device and inode. An open file
// needs them if its record has lost its place in the index, where marks no longer find it. A change
// can overwrite the row of another inode, which then may have changed, too. Thread-safe, across
// processes too. Async-signal-safe, no allocation.
#pragma once

#include <cstdint>

#include "cache/record/record.h"
#include "cache/region/ram/ram_tier.h"

namespace cube::cache {

// `how`: marks of Record; only k_in_place and k_unlinked are noted.
void note_last_change(Region& region, const FileStat& stat, std::uint32_t how);
// Whether the file may have been removed since the record was last verified. Its inode may then
// belong to another file.
bool may_be_gone(const RamTier& ram, const Record& record);
// Whether the file may have been changed in place since then, and still has a name, perhaps another
// one.
bool was_changed_and_kept(const RamTier& ram, const Record& record);

}  // namespace cube::cache
