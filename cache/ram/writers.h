// Which files of the node are open for writing, by device and inode, so that nobody caches them meanwhile.
// A stripe is one cache line: a count for each of the first few files that are written, and one for all beyond those. Each
// process notes its own besides, so that they end with it.
// Invariant: from the return of writing_begins to the call of writing_ends, may_be_written says yes. A file is taken for
// written that is not only where more than seven of a stripe are written at once, or where a process that wrote more than
// 64 files at once has died.
// Thread safety: all of it, between threads and processes. Async-signal-safe, no allocation.
#pragma once

#include "cache/file_stat.h"
#include "cache/ram/region.h"

namespace cube::cache {

WriterStripe& writer_stripe_of(Region& region, const FileStat& stat);

void writing_begins(Region& region, const FileStat& stat);
void writing_ends(Region& region, const FileStat& stat);
bool may_be_written(const WriterStripe& stripe, const FileStat& stat);

// Those of a process that is gone.
void forget_writers_of(Region& region, std::uint32_t process_slot);

}  // namespace cube::cache
