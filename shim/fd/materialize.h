// Materializing a served file replaces its placeholder by a kernel file at the same offset, under
// every fd that shares the open file. Usually the kernel file is the origin's own file, opened by
// the record's path and checked to be the same file. If the origin no longer has the file, the
// kernel file is a memfd with a copy of the pinned bytes. Afterwards these fds have no rows.
// Signals are blocked during the replacement, so that a handler cannot wait for the thread that it
// interrupts. Thread-safe and async-signal-safe.
#pragma once

#include "cache/base/process/block_signals.h"
#include "shim/fd/fd_table.h"
#include "shim/fd/placeholder.h"

namespace cube::shim {

// Returns 0, or -errno if no kernel file could be opened (EMFILE ...); the file then stays served.
// If the fd is not served, materialize() returns 0 after a few loads. `call` names, for the
// report, the call that needs the kernel file. By default, `call` is the name of the calling
// function, which is also the name of libc's function.
int materialize_slow(int fd, const char* call = __builtin_FUNCTION());
inline int materialize(int fd, const char* call = __builtin_FUNCTION()) {
  placeholder::unpark_if(fd);
  return g_fds.kind(fd) == RowKind::none || g_fds.kind(fd) == RowKind::directory
             ? 0
             : materialize_slow(fd, call);
}
// Puts the file of `kernel_fd` over a served fd, even if the program has since lowered its fd limit
// below that fd. `flags` are those of dup3(2).
void put_over(int kernel_fd, int fd, int flags);
// Call this before a lock. Puts the origin's own file over the fds of a served file, even if it has
// changed since the open. Reads are still answered from memory. If that fails, materializes the
// file. Returns 0 on success, or if `fd` is not served. Returns -errno if the origin still has the
// file but refuses to open it, or if no kernel file could be opened.
int show_origin(int fd);
// Call this before a change of the file itself, such as fchmod. Like materialize(), but accepts the
// origin's file even if its bytes have changed, and fails in the same cases as show_origin().
int materialize_to_change(int fd, const char* call = __builtin_FUNCTION());
// Opens the origin's own file under a new fd, if it is still the file that the program opened.
// Returns the fd, or -errno.
int open_origin_again(const OpenFile& file);
// Call this after the lock. Materializes the file if the origin's bytes differ from the bytes in
// memory.
void materialize_if_changed(int fd);
// If the kernel also has the file open, copies the offset to the kernel, for calls that bypass the
// shim.
void tell_offset(int fd);
// Call this after `copy` was made by a dup of `from` and has a row. Another thread may have put the
// origin's file over `from` after the dup and before `copy` had a row. If so, puts that file over
// `copy`, too.
void follow_origin(int from, int copy);
// Materializes every served file, or only the files whose fds survive an exec. Closes the parked
// placeholders.
void materialize_all(bool only_inherited = false, const char* call = __builtin_FUNCTION());
// Materializes a file that has changed since its open, and resets `file`. If no fd is free and the
// only change is that the file lost its name, the file stays served and `file` stays set.
void materialize_changed(int fd, OpenFileRef& file);
enum class ForkSide : bool { parent, child };
// Call this before a fork and in the new child. Materializes every served file. If an object in
// blocks cannot be materialized, its offset moves to the kernel, so that parent and child share the
// offset. If the parent has no free fd for a file, the file's fds answer EBADF in the child.
void materialize_for_child(ForkSide side);
// Call this before the process enters a sandbox, which may refuse later opens. Replaces the
// placeholders under directory streams by the origin's own directories.
void materialize_streams();
// Call this in the child of a fork, before it loses the parent's region. Copies files that could
// not be materialized into the child's own memory, which serves them from then on. This memory is
// never freed.
void keep_own_copies();

// Materializes the open files at or below this path.
void materialize_below(std::string_view path);
// Call this before a name change moves the target, and when the program begins to write to it.
// Materializes all open files with the target's inode, under any name. If the target is a directory
// or a link, instead materializes all files that were opened through links.
void materialize_other_names(const cache::FileStat& target, const char* call);

// Call this when a child or an io_uring also gets the fds of files that are being written. These
// files then count as being written even after this process has closed them.
void let_writers_outlive_us();
// Like let_writers_outlive_us, but only for fds that an exec leaves open. The next program of this
// process has these fds, and its children may inherit them.
void let_inherited_writers_outlive_us();
// Like let_writers_outlive_us, but for one fd that another process receives, or whose file is
// mapped for writing.
void let_writer_outlive_us(int fd, cache::Sharing how = cache::Sharing::inherited);
// Adds the counts of all open files to the region's counters.
void flush_counters();

using base::BlockSignals;

}  // namespace cube::shim
