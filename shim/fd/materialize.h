// A served file becomes a kernel file: the origin's own, opened by the record's path and found to
// be the same file, at the right offset, put over every number that shares it. If the origin has it
// no more, it is a memfd copy of the pinned bytes. After that the shim knows nothing of these
// numbers. Signals are blocked meanwhile, so that a handler cannot wait for the thread that it
// interrupts. Thread safety: all of it; async-signal-safe.
#pragma once

#include "cache/base/process/block_signals.h"
#include "shim/fd/fd_table.h"
#include "shim/fd/placeholder.h"

namespace cube::shim {

// 0, or -errno where no kernel file could be had (EMFILE ...); the file is then served as before.
// A number that is not served: 0, at the cost of one load.
// `call`: who wants it, for the report; by default the function that asks, which is called as
// libc's.
int materialize_slow(int fd, const char* call = __builtin_FUNCTION());
inline int materialize(int fd, const char* call = __builtin_FUNCTION()) {
  placeholder::unpark_if(fd);
  return g_fds.kind(fd) == RowKind::none || g_fds.kind(fd) == RowKind::directory
             ? 0
             : materialize_slow(fd, call);
}
// The same for a lock: reads are answered from memory as before, and the file may have changed
// since. If the origin has it no more, it is materialised. Nothing where fd is not served.
void show_origin(int fd);
// The origin's own file by an fd of ours, if it is still the one that the program has opened; or
// -errno.
int open_origin_again(const OpenFile& file);
// After the lock: a file that is not what is in memory is read by the kernel from now on.
void materialize_if_changed(int fd);
// The kernel's offset of a file that the kernel has, too: for who passes us by.
void tell_offset(int fd);
// A dup of a number that the kernel may have got the origin's file for, between the dup and its
// row.
void follow_origin(int from, int copy);
// Every served file (or only those that an exec would hand on) becomes real, and what is closed is
// closed for the kernel too.
void materialize_all(bool only_inherited = false, const char* call = __builtin_FUNCTION());
// The streams over listed directories get the origin's own, before a change of rights, root or
// sandbox that may refuse it later.
void materialize_streams();

// Materialises the open files of this path, or below it.
void materialize_below(std::string_view path);
// Materialises the open files of this file, which a name change is about to move, by whichever name
// they were opened; and all that were opened through links, if it is itself a directory or a link.
void materialize_other_names(const cache::FileStat& target);

// A read-only kernel fd over the bytes of a record, or -errno; for mode real, and for mappings.
int copy_to_memfd(const cache::Record& record);
// The same of a file without bytes.
int empty_memfd();

// Others have the writers' fds too (a child, the kernel's io_uring): the files count as being
// written from now on.
void let_writers_outlive_us();
// The next program of this process has those that an exec leaves open, and may leave them to
// children of its own.
void let_inherited_writers_outlive_us();
// The same of one: whoever receives it, or has it mapped, can write.
void let_writer_outlive_us(int fd, cache::Sharing how = cache::Sharing::inherited);
// Gives the counts of open files to the statistics.
void flush_counters();

using base::BlockSignals;

}  // namespace cube::shim
