// The files of the node that are open for writing, by device and inode, so that no process caches
// them while they are written. A stripe is one cache line. The stripe has a count for each of the
// first few files that are written, and one count for all further files. Each process also notes
// its own writers, so that they can be removed when the process ends.
//
// The process that opened a file may end or execute another program. The file can still be written
// after that if the next program or children of the process have inherited the open file. So the
// file is entered in a separate table (LeftWriter). The file leaves this table when the process is
// dead and had not shared the file, or when the kernel reports that the file has no writer. A file
// that a program inherits through an exec counts as shared, because this program may have children
// that the library does not see.
//
// Invariant: may_be_written returns true after writing_begins has returned. may_be_written may
// return false only after writing_ends was called, or after the last process that had inherited the
// open file has closed the file. A file that is not written can count as written in three cases.
// First, if more than seven files of a stripe are written at the same time. Second, if a process
// has died that wrote more than 64 files at the same time. Third, if the file was shared and the
// kernel does not report its writers. Thread-safe, also across processes. Async-signal-safe, no
// allocation.
#pragma once

#include "cache/record/file_stat.h"
#include "cache/region/region.h"

namespace cube::cache {

WriterStripe& writer_stripe_of(Region& region, const FileStat& stat);

void writing_begins(Region& region, const FileStat& stat);
// How a file can be written after the last close: other processes share the open file, or writable
// mappings of the file remain.
enum class Sharing : std::uint8_t { inherited, mapped };
// Call it between writing_begins and the last close of this process, if the file may still be
// written after that close. Do not call writing_ends then.
void writing_is_shared(Region& region, const FileStat& stat, Sharing how = Sharing::inherited);
bool is_writing_shared(Region& region, const FileStat& stat);
void writing_ends(Region& region, const FileStat& stat);
// Whether the file may be open for writing now. `fd`: the file, open for reading, or -1. With an
// fd, this function also asks the kernel whether any process of the node, even a process without
// the library, has the file open for writing. The fd must not carry a lease of the program. `stat`
// must have been taken before this call. If no process is writing the file now, the next writer
// changes the file's times, so that they differ from `stat`. `removals` counts writers in
// LeftWriter entries that have stopped. If the count has grown, these writers may have written to
// the file after `stat` was taken.
bool may_be_written(Region& region, const FileStat& stat, int fd = -1,
                    std::uint64_t* removals = nullptr);
// Like may_be_written, for a caller without a region: asks only the kernel. False: no process of
// the node has the file open for writing, or the kernel cannot tell.
bool is_open_for_writing(const FileStat& stat, int fd);

// Removes the writers of a process that has ended or has executed another program. The caller must
// hold the lifecycle lock.
void forget_writers_of(Region& region, std::uint32_t process_slot);

}  // namespace cube::cache
