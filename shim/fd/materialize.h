// Materializing a served file replaces its placeholder by a kernel file: the origin's own, opened
// by the record's path and found to be the same file, at the right offset, put over every fd that
// shares it. If the origin no longer has the file, a memfd copy of the pinned bytes replaces the
// placeholder. After that, these fds have no rows. Signals are blocked meanwhile, so that a handler
// cannot wait for the thread that it interrupts. Thread-safe and async-signal-safe.
#pragma once

#include "cache/base/process/block_signals.h"
#include "shim/fd/fd_table.h"
#include "shim/fd/placeholder.h"

namespace cube::shim {

// Returns 0, or -errno if no kernel file could be opened (EMFILE ...), in which case the file stays
// served. If the fd is not served, returns 0 at the cost of one load. `call`: the call that needs
// the kernel file, for the report; by default the calling function, which is named like libc's.
int materialize_slow(int fd, const char* call = __builtin_FUNCTION());
inline int materialize(int fd, const char* call = __builtin_FUNCTION()) {
  placeholder::unpark_if(fd);
  return g_fds.kind(fd) == RowKind::none || g_fds.kind(fd) == RowKind::directory
             ? 0
             : materialize_slow(fd, call);
}
// Puts the file of `kernel_fd` over an fd of ours, even if the program has since lowered its fd
// limit below that fd. `flags`: those of dup3(2).
void put_over(int kernel_fd, int fd, int flags);
// Call it before a lock: puts the origin's own file over the fds, while reads are still answered
// from memory. The file may have changed since the open. If the origin no longer has the file,
// materializes it. Does nothing if fd is not served. Returns 0, or -errno if the origin has the
// file but does not let the process open it again, or if no kernel file could be opened.
int show_origin(int fd);
// Call it before a change of the file itself, such as fchmod. Like materialize(), but accepts the
// origin's file even if its bytes have changed, and fails with -errno where show_origin() does.
int materialize_to_change(int fd, const char* call = __builtin_FUNCTION());
// Opens the origin's own file again, under a new fd, if it is still the one that the program has
// opened. Returns the fd, or -errno.
int open_origin_again(const OpenFile& file);
// Call it after the lock: materializes the file if the origin's bytes differ from those in memory.
void materialize_if_changed(int fd);
// If the kernel also has the file open, sets its offset there, for calls that bypass the shim.
void tell_offset(int fd);
// Puts the origin's file over `copy`, a dup of `from`, if another thread has put it over `from`
// after the dup, before the dup had a row.
void follow_origin(int from, int copy);
// Materializes every served file (or only those whose fds survive an exec), and closes the parked
// placeholders.
void materialize_all(bool only_inherited = false, const char* call = __builtin_FUNCTION());
// Materializes a file that has changed since its open, and resets `file`. If no fd is free for that
// and the file has only lost its name, it stays served, and `file` stays set.
void materialize_changed(int fd, OpenFileRef& file);
enum class ForkSide : bool { parent, child };
// Call it before a fork and in the new child: materializes every served file. If that fails for an
// object in blocks, the kernel keeps at least its offset, so that parent and child share it.
void materialize_for_child(ForkSide side);
// Call it before the process enters a sandbox, which may refuse later opens: replaces the
// placeholders under directory streams by the origin's own directories.
void materialize_streams();
// In the child of a fork: files that could not be materialized are served from the child's own
// memory, because the parent's region is about to go away. That memory is never freed.
void keep_own_copies();

// Materializes the open files at or below this path.
void materialize_below(std::string_view path);
// Call it before a name change moves this file, and when the program begins to write it:
// materializes its open files, under all names under which they were opened. If it is a directory
// or a link, materializes all files that were opened through links.
void materialize_other_names(const cache::FileStat& target, const char* call);

// Call it when the fds of files that are being written also go to a child or to an io_uring: these
// files count as being written even after this process closes them.
void let_writers_outlive_us();
// Like let_writers_outlive_us, but only for fds that an exec leaves open, because the next program
// of this process has them, and its children may inherit them.
void let_inherited_writers_outlive_us();
// Like let_writers_outlive_us, but for one fd: a process that receives it or maps its file can
// write.
void let_writer_outlive_us(int fd, cache::Sharing how = cache::Sharing::inherited);
// Adds the counts of open files to the statistics.
void flush_counters();

using base::BlockSignals;

}  // namespace cube::shim
