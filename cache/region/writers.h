// The files of the node that are open for writing, by device and inode, so that no process caches
// them while they are written. A stripe is one cache line: a count for each of the first few files
// that are written, and one for all beyond those. Each process also keeps its own notes, so that
// its writers are removed when it ends.
//
// A file can be written after the process that opened it has ended or has become another program,
// if its next program and its children have inherited the open file. Such a file goes to a table of
// its own (LeftWriter), and stays there until it has no writer: the process is dead and had not
// shared the file, or the kernel reports that there is none. A file that an exec hands to the next
// program counts as shared, because that program may have children that the library does not see.
//
// Invariant: may_be_written returns true from the return of writing_begins to the call of
// writing_ends, or to the last close by any process that has inherited the open file. A file that
// is not written counts as written only if more than seven files of a stripe are written at the
// same time, if a process that wrote more than 64 files at the same time has died, or if the file
// was shared and the kernel does not report its writers. Thread-safe, across processes too.
// Async-signal-safe, no allocation.
#pragma once

#include "cache/record/file_stat.h"
#include "cache/region/region.h"

namespace cube::cache {

WriterStripe& writer_stripe_of(Region& region, const FileStat& stat);

void writing_begins(Region& region, const FileStat& stat);
// Whether other processes share the open file, or mappings of it can write to it.
enum class Sharing : std::uint8_t { inherited, mapped };
// Call it between writing_begins and our last close, after which the file may still be written.
// writing_ends is not called then.
void writing_is_shared(Region& region, const FileStat& stat, Sharing how = Sharing::inherited);
bool is_writing_shared(Region& region, const FileStat& stat);
void writing_ends(Region& region, const FileStat& stat);
// True if the file may be open for writing now. `fd`: the file, open for reading, or -1. The kernel
// is asked through this fd whether any process of the node has the file open for writing, under the
// library or not; the fd must carry no lease of the program's. `stat` must be older than this call:
// if no process writes the file now, the first store of a later writer changes its times.
// `removals` counts the `LeftWriter` entries that have stopped writing. If it grew, `stat` may
// predate their last write.
bool may_be_written(Region& region, const FileStat& stat, int fd = -1,
                    std::uint64_t* removals = nullptr);

// Removes the writers of a process that has ended or has become another program. The caller holds
// the lifecycle lock.
void forget_writers_of(Region& region, std::uint32_t process_slot);

}  // namespace cube::cache
