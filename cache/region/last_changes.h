// The last changes of files that processes of the node have reported, by device and inode. If a
// record is no longer in the index, it gets no more marks. If a file is open with such a record,
// this table tells whether the file has changed. A new change can overwrite the row of another
// inode. The file of the other inode then counts as changed, but only if no process of the node can
// have reported its removal. Thread-safe, across processes too. Async-signal-safe, no allocation.
#pragma once

#include <cstdint>

#include "cache/record/record.h"
#include "cache/region/ram/ram_tier.h"

namespace cube::cache {

// `how`: marks of Record; only k_in_place and k_unlinked are noted.
void note_last_change(Region& region, const FileStat& stat, std::uint32_t how);
// Whether the file may have been removed since the record was last verified. If so, its inode may
// belong to another file.
bool may_be_gone(const RamTier& ram, const Record& record);
// Whether the file may have been changed in place since the record was last verified, and still has
// a name, perhaps a new one.
bool was_changed_and_kept(const RamTier& ram, const Record& record);

}  // namespace cube::cache
