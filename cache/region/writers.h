// Which files of the node are open for writing, by device and inode, so that nobody caches them
// meanwhile. A stripe is one cache line: a count for each of the first few files that are written,
// and one for all beyond those. Each process notes its own besides, so that they end with it. A
// file can be written after the process that opened it has ended or has become another program: its
// next program and its children have inherited the open file. Such a file goes to a table of its
// own (LeftWriter), and stays there until it is known that nobody writes it: the process is dead
// and had shared the file with nobody, or the kernel says so. A file that an exec hands to the next
// program counts as shared, for that program may have children of which nobody is told. Invariant:
// from the return of writing_begins to the call of writing_ends, or to the last close of all who
// have inherited the open file, may_be_written says yes. A file is taken for written that is not
// only where more than seven of a stripe are written at once, where a process that wrote more than
// 64 files at once has died, or where a file was shared and the kernel does not say who writes it.
// Thread safety: all of it, between threads and processes. Async-signal-safe, no allocation.
#pragma once

#include "cache/record/file_stat.h"
#include "cache/region/region.h"

namespace cube::cache {

WriterStripe& writer_stripe_of(Region& region, const FileStat& stat);

void writing_begins(Region& region, const FileStat& stat);
// By other processes that have the open file, or by mappings of it.
enum class Sharing : std::uint8_t { inherited, mapped };
// Between the two: the file may be written after our last close. writing_ends is not called then.
void writing_is_shared(Region& region, const FileStat& stat, Sharing how = Sharing::inherited);
bool is_writing_shared(Region& region, const FileStat& stat);
void writing_ends(Region& region, const FileStat& stat);
// `fd`: the file, open for reading, by which the kernel is asked whether anybody of the node has it
// open for writing, under the library or not; it must have no lease of the program's. -1: there is
// none. `stat` must be older than this question: if nobody writes the file now, whoever opens it
// later moves its times by the first store. `removals` counts how often the file was found to be
// written no more by those to whom it was left: `stat` may be from before their last write.
bool may_be_written(Region& region, const FileStat& stat, int fd = -1,
                    std::uint64_t* removals = nullptr);

// Takes back the writers of a process that has ended or has become another program. The caller
// holds the lifecycle lock.
void forget_writers_of(Region& region, std::uint32_t process_slot);

}  // namespace cube::cache
