// The last changes of files that processes of the node have reported, by device and inode. A record
// that is no longer in the index gets no more marks. If a program still has its file open, this
// table tells whether the file has changed. A change of another inode can overwrite the row. The
// file then counts as changed in place, unless its removal may have been overwritten as well.
// Thread-safe, across processes too. Async-signal-safe, no allocation.
#pragma once

#include <cstdint>

#include "cache/record/record.h"
#include "cache/region/ram/ram_tier.h"

namespace cube::cache {

// `how`: marks of Record; only k_in_place and k_unlinked are noted. `at_ns`: the time of the change
// (base::boot_ns), if it was not made just now.
void note_last_change(Region& region, const FileStat& stat, std::uint32_t how,
                      std::uint64_t at_ns = UINT64_MAX);
// Whether the file may have been removed since the record was last verified. If so, its inode may
// belong to another file.
bool may_be_gone(const RamTier& ram, const Record& record);
// Whether the file may have been changed in place since the record was last verified, and still has
// a name, perhaps a new one.
bool was_changed_and_kept(const RamTier& ram, const Record& record);

}  // namespace cube::cache
